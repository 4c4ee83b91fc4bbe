"""Calls in the form of Gemma: keys without quotes, and strings between two equal tokens.

<|tool_call>call:f{a:<|"|>x<|"|>,n:[1,{b:true}]}<tool_call|>
<start_function_call>call:f{a:<escape>x<escape>,n:1}<end_function_call>
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.families.bare_arguments import bare_forms, is_text, row_format, typed_json, types_of
from gateway.families.family import Tool
from gateway.families.family_parser import FamilyParser, Grammar
from gateway.families.json_calls import dumps, read_name
from gateway.families.literals import MAX_DEPTH, LiteralReader
from gateway.families.markers import markers_of
from gateway.families.parser_events import FormingCall
from gateway.families.structural_tags import Format, either, sequence, tag
from gateway.families.text_source import SPACE, Emit, Steps, TextSource, need

_CALL = "call:"
_NO_KEY = frozenset("{}[],")
_CLOSING = {"{": "}", "[": "]"}
_SCALARS = frozenset({"string", "integer", "number", "boolean", "null"})


@dataclass(frozen=True, kw_only=True)
class GemmaCalls(Grammar):
    """Reads such calls.

    Attributes:
        call: its ``ARGUMENTS`` has the opening brace: ``call:NAMEARGUMENTS}`` between the markers.
        quote: the token on both sides of a string.
        typed: whether arguments of other types stand between these tokens, too: the tool's schema tells their types.
    """

    quote: str
    typed: bool = False

    @property
    def markers(self) -> Sequence[str]:
        """All that only belong to the format."""
        return (*super().markers, self.quote)

    def read_call(self, parser: FamilyParser, call: FormingCall) -> Steps[None]:
        """Read a call behind its marker; see ``Grammar``."""
        source = parser.source
        yield from source.expect(_CALL)
        name = yield from read_name(source)
        yield from source.expect("{")
        call.named(name)
        parser.end_header()
        typed = parser.plan.parameters(name) or {} if self.typed else None
        yield from _Values(source, call.arguments, self.quote).row_of("}", 1, typed)
        call.complete()
        yield from source.spaced(self.close, self._half_close)

    @property
    def _half_close(self) -> str:
        """The closing marker without its first character, which models forget."""
        return self.close[1:]

    def skip(self, source: TextSource, marker: str) -> Steps[str]:
        """Read the end of a broken call."""
        if not marker:
            yield from source.spaced(self._half_close)
        return ""

    def without_format(self, raw: str, *, cut: bool) -> str:  # noqa: ARG002 - of the base
        """The text without what is left of the closing marker; see ``Grammar``."""
        return raw.replace(self.close, "").replace(self._half_close, "")

    def hold(self, tool: Tool) -> Format | None:
        """The arguments of a tool, with the opening brace; None where they cannot be held, as lists and objects."""

        def held(name: str, value: Mapping[str, Any]) -> Format | None:
            if not name or name != name.strip(SPACE) or any(mark in name for mark in (":", self.quote, *_NO_KEY)):
                return None
            forms = bare_forms(value) if types_of(value) <= _SCALARS else []
            each = [tag(self.quote, form, self.quote) if text else form for text, form in forms]
            return sequence(f"{name}:", either(*each)) if each else None

        return row_format(tool, held, begin="{", between=",")


class _Values(LiteralReader):
    """Reads the values of a call; numbers and words are Python's or JSON's."""

    def __init__(self, source: TextSource, emit: Emit, quote: str) -> None:
        super().__init__(source, emit)
        self._quote = quote

    def row_of(self, closing: str, depth: int, typed: Mapping[str, Any] | None = None) -> Steps[None]:
        """Read an object or a list behind its opening bracket; ``depth``: objects and lists here, this one among them.

        ``typed``: the schema that tells the types of an object's values between quotes; None: they are strings.
        """
        keys: set[str] = set()

        def pair(separator: str) -> Steps[bool]:
            key = yield from self._key()
            need(key and key not in keys)
            self.emit(f"{separator}{dumps(key)}: ")
            keys.add(key)
            yield from self.source.space()
            if typed is None or is_text(typed, key) or not (yield from self.source.literal(self._quote)):
                return (yield from self._value(depth))
            text, end = yield from self.source.text_until(self._quote)
            need(end)
            self.emit(typed_json(typed, key, text))
            return True

        def member(separator: str) -> Steps[None]:
            self.emit(separator)
            yield from self._value(depth)

        self.emit("{" if closing == "}" else "[")
        yield from self.row(closing, pair if closing == "}" else member)
        self.emit(closing)

    def _key(self) -> Steps[str]:
        """Read a key, between quotes or not, and the colon; empty when there is none."""
        if (yield from self.source.literal(self._quote)):
            key, _ = yield from self.source.text_until(self._quote)
            return key if (yield from self.source.spaced(":")) else ""
        key, end = yield from self.source.text_until(":", self._quote, *_NO_KEY)
        return key.strip(SPACE) if end == ":" else ""

    def _value(self, depth: int) -> Steps[bool]:
        """Read a value; returns whether it is a string, behind which models forget the comma."""
        if (yield from self.source.literal(self._quote)):
            self.emit('"')
            need((yield from self.source.until(markers_of(self._quote), self.text)))
            self.emit('"')
            return True
        opening = "" if depth >= MAX_DEPTH else (yield from self.source.choice(*_CLOSING))
        yield from self.row_of(_CLOSING[opening], depth + 1) if opening else self.scalar()
        return False
