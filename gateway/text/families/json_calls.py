"""Calls with JSON arguments: ``{"name": ..., "arguments": {...}}``, lists of them, or a name before ``{...}``."""

from __future__ import annotations

import json
import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from gateway.text.families.family_parser import FamilyParser, Grammar
from gateway.text.families.json_scanner import is_json
from gateway.text.families.markers import markers_of
from gateway.text.families.parser_events import FormingCall
from gateway.text.families.structural_tags import CallFormat
from gateway.text.families.text_source import SPACE, Steps, TextSource, need, pieces_of

NAME_CHARACTERS = string.ascii_letters + string.digits + "_-."
"""Characters of function names, namespaces included."""

LONGEST_NAME = 256
"""Characters that a name has at most."""


JSON_CALL = '{"name": "NAME", "arguments": ARGUMENTS}'
"""A call of most families, as of ``CallFormat``."""

KEYS: Mapping[str, str] = {"name": "name", "arguments": "arguments", "parameters": "arguments"}
"""The parts of a call by their keys; there may be an ``id``, the model's own."""

_FENCE = "```"
_BEGINNINGS = '{"n'  # of an object, of a string that holds one, and of null


@dataclass(frozen=True, kw_only=True)
class JsonCalls(Grammar):
    """Reads a list of calls, one call or several behind a marker; the end marker may be missing.

    Any of ``opens`` and ``extra`` may follow another of ``opens``.

    Attributes:
        call: a call, with its markers if each call has them. Its keys are read; ``arguments`` and ``parameters`` are
            always equal.
        word: an ordinary word with the bracket of a list, which begins calls as well; text when no call follows.
        header: all between text and a call in a message of its own: a marker, the role as an ordinary word, a marker.
    """

    call: str = JSON_CALL
    gap: str = ", "
    word: str = ""
    header: str = ""

    @cached_property
    def _keys(self) -> Mapping[str, str]:
        """The parts of a call by their keys, as of ``read_json_call``."""
        keys = {key: part for key, part in KEYS.items() if part == "arguments"}
        keys.update((key, part.lower()) for key, part in re.findall(r'"(\w+)": "?(NAME|ARGUMENTS)', self.call))
        return keys if "name" in keys.values() else {}

    @property
    def _header(self) -> Sequence[str]:
        return pieces_of(self.header)

    @property
    def markers(self) -> Sequence[str]:
        """All texts that only belong to the format."""
        return (*super().markers, *self._header[::2])

    @property
    def opening(self) -> Sequence[str]:
        """The texts that may begin a call: the markers, the header's first marker, and the word."""
        return (*self.opens, *self._header[:1], *filter(None, [self.word]))

    @property
    def call_format(self) -> CallFormat | None:
        """The format as a structural tag, in every form that begins a call."""
        if (form := super().call_format) is None:
            return None
        words = [replace(form, trigger=self.word, section=(self.word, "]"))] if self.word else []
        return replace(form, also=(*map(form.begun_by, filter(None, [*self.opens[1:], self.header])), *words))

    def read_block(self, parser: FamilyParser) -> Steps[None]:
        """Read the calls behind an opening marker."""
        source, keys = parser.source, self._keys
        if parser.marker == self.word:
            return (yield from read_call_list(parser, parser.begin_call(self.word), listed=True, keys=keys))
        call = parser.begin_call(header=bool(self.header))
        for text in self._header[1:]:
            yield from source.spaced(text)
        yield from source.space()
        while not self.header and (yield from source.choice(*self.opens, *self.extra)):
            yield from source.space()
        if self.header and (yield from source.peek()) == "{":
            parser.end_header()
        yield from read_call_list(parser, call, keys=keys)

    def without_format(self, raw: str, *, cut: bool) -> str:  # noqa: ARG002 - of the base
        """Remove the role of a header from a text; see ``Grammar``."""
        return raw.replace("".join(self._header[1:]), "") if self.header else raw


@dataclass(frozen=True, kw_only=True)
class NamedCalls(Grammar):
    """Reads a name, a separator and JSON arguments behind a marker, with whitespace between them.

    Attributes:
        separator: the marker before the arguments; a single character is ordinary text.
        section: markers.
        call: text before the name may be left out; where a colon and a number follow the name, all up to the number is
            the model's own id.
        id_marker: the marker before the model's own id, which may be missing; empty without one.
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
        """All texts that only belong to the format."""
        texts = (*super().markers, *self.section, self.separator, self.id_marker)
        return [text for text in texts if len(text) > 1]

    @property
    def begins(self) -> Sequence[str]:
        """The marker that begins a section, or a call where there are no sections."""
        return self.section[:1] if self.section[0] else self.opens

    @property
    def call_format(self) -> CallFormat | None:
        """The format as a structural tag, without an id that may be missing."""
        if self.array != "written":
            return super().call_format
        return CallFormat(JSON_CALL, self.opens[0], (f"{self.opens[0]}[", "]"), ", ")

    def skip(self, source: TextSource, marker: str) -> Steps[str]:
        """Discard text between the section's marker and its first call; see ``Grammar``."""
        if marker and marker == self.section[0]:
            text, found = yield from source.seek(markers_of(*self.opens, *filter(None, [self.section[1]])))
            source.read(len(text) if found in self.opens else 0)
        return ""

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
        ends = [_FENCE] if fenced else [self.close or self.opens[0], *filter(None, [self.section[1].strip()])]
        need((begun and begun in _BEGINNINGS) or (yield from source.at_end(*ends)))
        call.named(name)
        yield from read_arguments(source, call, *ends)
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
        need(
            (yield from source.spaced(self.separator)) or (self.bare and (yield from source.ahead()) in {*_BEGINNINGS})
        )
        following = yield from source.ahead()
        if self.typed and following and following in NAME_CHARACTERS:
            written = yield from read_name(source)
            yield from source.space()
        name = written.rpartition(":")[0] if numbered else written
        return name.removeprefix(self.call.partition("NAME")[0].removeprefix(self.opens[0])), call_id or None


class GuidedCalls(Grammar):
    """Reads the array of ``call_schema.calls_guide``, in all families, or content in its place.

    An answer that breaks the guide is content from the first wrong character on.
    """

    def run(self, parser: FamilyParser) -> Steps[None]:
        """Read reasoning, then the array or content."""
        yield from parser.think(opened=parser.opened)
        call = parser.begin_call()
        if (yield from parser.source.spaced("[")):
            yield from read_call_list(parser, call, listed=True)
        else:
            parser.broken(call)


def read_name(source: TextSource) -> Steps[str]:
    """Read a function's name; empty without one."""
    return (yield from source.run(NAME_CHARACTERS, LONGEST_NAME))


def read_call_list(
    parser: FamilyParser, call: FormingCall, *, listed: bool = False, keys: Mapping[str, str] = KEYS
) -> Steps[None]:
    """Read a JSON array of calls, or calls without an array; reports each complete call.

    The first, ``call``, has begun. The first broken one ends the list: it is content, and so is the text behind it.
    ``listed``: whether the array's bracket was read. ``keys``: as of ``read_json_call``.
    """
    source = parser.source
    listed = listed or bool((yield from source.spaced("[")))
    while (yield from parser.attempt(call, read_json_call(source, call, keys=keys))):
        call.complete()
        more = (yield from source.spaced(",")) if listed else (yield from source.ahead()) == "{"
        if not more:
            yield from source.literal("]" if listed else "")
            return
        call = parser.begin_call()


def read_json_call(source: TextSource, call: FormingCall, *, keys: Mapping[str, str] = KEYS) -> Steps[None]:
    """Read an object with a call's name and arguments, in any order; other keys are skipped.

    Missing arguments or null become ``{}``; a string with a JSON object becomes this object.

    Args:
        source: text at the object, or at whitespace before it.
        call: takes name and arguments. It is not completed, as the text around the object may matter.
        keys: parts of the call by their keys; None: the only key is the name, and its value the arguments.

    Raises:
        BrokenCallError: the text is not a whole object with the name of a tool and an object of arguments.
    """
    yield from source.expect("{")
    seen: set[str] = set()
    more: str | None = ","
    while more:
        key = yield from read_json_string(source)
        yield from source.expect(":")
        yield from source.space()
        yield from _read_field(source, call, keys.get(key, "") if keys else "call", key, seen)
        more = yield from source.spaced(",")
    yield from source.expect("}")
    need("name" in seen)
    if "arguments" not in seen:
        call.arguments("{}")


def _read_field(source: TextSource, call: FormingCall, part: str, key: str, seen: set[str]) -> Steps[None]:
    """Read the value of a key, which is a ``part`` of the call, all of it or none; notes the parts that were seen."""
    if not part:
        return (yield from source.json())
    need(part not in seen)
    seen.update(("call", "name", "arguments") if part == "call" else (part,))
    if part == "call":
        call.named(key)
    if part in {"call", "arguments"}:
        yield from read_arguments(source, call)
    elif part == "name":
        call.named((yield from read_json_string(source)))
    else:
        call.id = yield from read_json_string(source)


def read_json_string(source: TextSource) -> Steps[str]:
    """Read a JSON string; returns its value."""
    pieces: list[str] = []
    need((yield from source.ahead()) == '"')
    yield from source.json(pieces.append)
    text = "".join(pieces)
    source.examined += len(text)
    value: str = json.loads(text)
    return value


def read_arguments(source: TextSource, call: FormingCall, *ends: str) -> Steps[None]:
    """Read the arguments of a call: an object, a string with an object, or null.

    A blank string means no arguments, as does one of the ``ends`` or the end of the answer.
    """
    first = yield from source.ahead()
    if first == "{":
        yield from source.json(call.arguments)
    elif first == '"':
        text = yield from read_json_string(source)
        source.examined += len(text)
        if not text.strip(SPACE):
            need(not ends or (yield from source.at_end(*ends)))
            text = "{}"
        need(text.lstrip(SPACE).startswith("{") and is_json(text.strip(SPACE)))
        call.arguments(text)
    else:
        need((yield from source.literal("null")) or (ends and (yield from source.at_end(*ends))))
        call.arguments("{}")


def dumps(value: Any) -> str:
    """Write arguments as JSON that a format did not write as JSON."""
    return json.dumps(value, ensure_ascii=False)
