"""Calls written as a marker, a name and JSON arguments, such as ``<call>f<separator>{"a": 1}<end>``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from gateway.families.family_parser import FamilyParser, Grammar
from gateway.families.json_calls import (
    JSON_CALL,
    KEYS,
    LONGEST_NAME,
    NAME_CHARACTERS,
    read_arguments,
    read_call_list,
    read_name,
)
from gateway.families.parser_events import FormingCall
from gateway.families.structural_tags import CallFormat
from gateway.families.text_source import Steps, TextSource, need

_FENCE = "```"
_BEGINNINGS = '{"n'  # of an object, of a string that holds one, and of null


@dataclass(frozen=True, kw_only=True)
class NamedCalls(Grammar):
    """Reads a name, a separator and JSON arguments behind a marker; whitespace may stand between all of them.

    Attributes:
        separator: the marker before the arguments; a single character is ordinary text.
        section: markers.
        call: text before the name may be left out; where a colon and a number follow the name, all up to the number is
            the model's own id.
        id_marker: the marker before the model's own id, which may be missing; empty: there is none.
        bare: whether some models leave the separator out.
        typed: whether the word ``function`` and a separator may stand before the name.
        fenced: whether the arguments may stand in a Markdown fence.
        array: whether a JSON array of calls may stand behind the marker: it is read, or also what models write.
    """

    separator: str
    id_marker: str = ""
    bare: bool = False
    typed: bool = False
    fenced: bool = False
    array: Literal["no", "read", "written"] = "no"

    @property
    def markers(self) -> Sequence[str]:
        """All that only belong to the format."""
        texts = (*super().markers, *self.section, self.separator, self.id_marker)
        return [text for text in texts if len(text) > 1]

    @property
    def begins(self) -> Sequence[str]:
        """That of the section, if there is one."""
        return self.section[:1] if self.section[0] else self.opens

    @property
    def call_format(self) -> CallFormat | None:
        """The format as a structural tag, without an id that may be missing."""
        if self.array != "written":
            return super().call_format
        return CallFormat(JSON_CALL, self.opens[0], (f"{self.opens[0]}[", "]"), ", ")

    def read_block(self, parser: FamilyParser) -> Steps[None]:
        """Read a call, or an array of them; see ``Grammar``."""
        if (yield from parser.source.ahead()) in {"[", "{"} and self.array != "no":
            yield from read_call_list(parser, parser.begin_call(), keys={**KEYS, "id": "id"})
        else:
            yield from super().read_block(parser)

    def read_call(self, parser: FamilyParser, call: FormingCall) -> Steps[None]:
        """Read a call behind its marker; see ``Grammar``."""
        source = parser.source
        name, call.id = yield from self._read_head(source)
        fenced = self.fenced and (yield from source.literal(_FENCE))
        if fenced:
            yield from source.literal("json")
        begun = yield from source.ahead()
        if begun in {"{", '"'}:
            parser.end_header()
        need(begun and begun in _BEGINNINGS)
        call.named(name)
        yield from read_arguments(source, call)
        call.complete()
        if fenced:
            yield from source.spaced(_FENCE)

    def _read_head(self, source: TextSource) -> Steps[tuple[str, str | None]]:
        """Read the name, the separators and the model's id."""
        numbered = "NAME:NUMBER" in self.call
        written = yield from source.run(NAME_CHARACTERS + ":" * numbered, LONGEST_NAME)
        call_id = written if numbered else ""
        if self.id_marker and (yield from source.spaced(self.id_marker)):
            yield from source.space()
            call_id = yield from read_name(source)
        need((yield from source.spaced(self.separator)) or self.bare)
        following = yield from source.ahead()
        if self.typed and following and following in NAME_CHARACTERS:
            written = yield from read_name(source)
            yield from source.space()
        name = written.rpartition(":")[0] if numbered else written
        return name.removeprefix(self.call.partition("NAME")[0].removeprefix(self.opens[0])), call_id or None
