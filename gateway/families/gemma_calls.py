"""Calls in the form of Gemma: keys without quotes, and strings between two equal tokens.

<|tool_call>call:f{a:<|"|>x<|"|>,n:[1,{b:true}]}<tool_call|>
<start_function_call>call:f{a:<escape>x<escape>,n:1}<end_function_call>
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from gateway.families.bare_arguments import argument_types, bare_forms, is_text, row_format, typed_json
from gateway.families.family_parser import FamilyParser
from gateway.families.grammar import Grammar
from gateway.families.json_calls import dumps, read_name
from gateway.families.markers import Markers
from gateway.families.parser_events import FormingCall
from gateway.families.python_literals import MAX_DEPTH, read_python_scalar, say_text
from gateway.families.structural_tags import CallFormat, Format, constant, either, sequence, tag
from gateway.families.text_source import Emit, Steps, TextSource
from gateway.families.tool_plan import Tool

_CALL = "call:"
_SPACE = " \t\r\n"
_NO_KEY = frozenset("{}[],")
_SCALARS = frozenset({"string", "integer", "number", "boolean", "null"})


@dataclass(frozen=True, kw_only=True)
class GemmaCalls(Grammar):
    """Reads such calls.

    Attributes:
        quote: the token on both sides of a string.
        typed: whether arguments of other types stand between these tokens, too: the tool's schema tells their types.
    """

    quote: str
    typed: bool = False

    @property
    def markers(self) -> Sequence[str]:
        """All that only belong to the format."""
        return (*super().markers, self.quote)

    @property
    def call_format(self) -> CallFormat:
        """The format as a structural tag."""
        return CallFormat(self.opens[0] + _CALL, "", "}" + self.close, self.opens[0], arguments=self._arguments)

    @cached_property
    def _quotes(self) -> Markers:
        return Markers(self.quote)

    @cached_property
    def _key_ends(self) -> Markers:
        return Markers(":", self.quote, *_NO_KEY)

    def read_call(self, parser: FamilyParser, call: FormingCall) -> Steps[bool]:
        """Read a call behind its marker; see ``Grammar``."""
        source = parser.source
        yield from source.space()
        if not (yield from source.literal(_CALL)):
            return False
        name = yield from read_name(source)
        yield from source.space()
        if not (yield from source.literal("{")) or not call.named(name):
            return False
        parser.end_header()
        typed = parser.plan.parameters(name) or {} if self.typed else None
        if not (yield from self._object(source, call.arguments, 1, typed)) or not call.complete():
            return False
        yield from source.space()
        yield from source.literal(self.close)
        return True

    def _object(
        self, source: TextSource, emit: Emit, depth: int, typed: Mapping[str, Any] | None = None
    ) -> Steps[bool]:
        """Read keys and values behind a brace, up to and including the one that closes it.

        Args:
            source: behind the brace.
            emit: takes the JSON text.
            depth: objects and lists here, this one among them.
            typed: the schema that tells the types of values between quotes; None: they are strings.
        """
        emit("{")
        keys: set[str] = set()
        more = True
        while True:
            yield from source.space()
            if (yield from source.literal("}")):
                emit("}")
                return True
            key = yield from self._key(source)
            if not more or not key or key in keys:
                return False
            emit(f"{', ' if keys else ''}{dumps(key)}: ")
            keys.add(key)
            yield from source.space()
            quoted = yield from source.literal(self.quote)
            if quoted and typed is not None and not is_text(typed, key):
                good = yield from self._typed(source, emit, typed, key)
            else:
                good = yield from self._string(source, emit) if quoted else self._value(source, emit, depth)
            if not good:
                return False
            yield from source.space()
            more = (yield from source.literal(",")) or quoted  # models forget the comma behind a closing quote

    def _key(self, source: TextSource) -> Steps[str]:
        """Read a key, between quotes or not, and the colon; empty when there is none."""
        pieces: list[str] = []
        if (yield from source.literal(self.quote)):
            end = yield from source.until(self._quotes, pieces.append)
            yield from source.space()
            whole = end is not None and (yield from source.literal(":"))
            return "".join(pieces) if whole else ""
        end = yield from source.until(self._key_ends, pieces.append)
        return "".join(pieces).strip(_SPACE) if end == ":" else ""

    def _value(self, source: TextSource, emit: Emit, depth: int) -> Steps[bool]:
        """Read an object, a list, a number or a word."""
        if depth >= MAX_DEPTH:
            return False
        if (yield from source.literal("{")):
            return (yield from self._object(source, emit, depth + 1))
        if (yield from source.literal("[")):
            return (yield from self._list(source, emit, depth + 1))
        return (yield from read_python_scalar(source, emit))

    def _list(self, source: TextSource, emit: Emit, depth: int) -> Steps[bool]:
        emit("[")
        first = more = True
        while True:
            yield from source.space()
            if (yield from source.literal("]")):
                emit("]")
                return True
            if not more:
                return False
            emit("" if first else ", ")
            first = False
            quoted = yield from source.literal(self.quote)
            if not (yield from self._string(source, emit) if quoted else self._value(source, emit, depth)):
                return False
            yield from source.space()
            more = yield from source.literal(",")

    def _string(self, source: TextSource, emit: Emit) -> Steps[bool]:
        """Read a string behind its quote; it ends at the next one, whatever stands in it."""
        emit('"')
        closed = (yield from source.until(self._quotes, partial(say_text, source, emit))) is not None
        emit('"' if closed else "")
        return closed

    def _typed(self, source: TextSource, emit: Emit, schema: Mapping[str, Any], key: str) -> Steps[bool]:
        """Read a value of any type behind its quote."""
        pieces: list[str] = []
        closed = (yield from source.until(self._quotes, pieces.append)) is not None
        if closed:
            text = "".join(pieces)
            source.examined += len(text)
            emit(typed_json(schema, key, text))
        return closed

    def _arguments(self, tool: Tool) -> Format | None:
        """The arguments of a tool, with the opening brace; None where they cannot be held, as lists and objects."""

        def hold(name: str, value: Mapping[str, Any]) -> Format | None:
            types = argument_types(tool.parameters, name)
            if not name or name != name.strip(_SPACE) or any(mark in name for mark in self._key_ends.texts):
                return None
            forms = bare_forms(types, value) if types and types <= _SCALARS else []
            each = [tag(self.quote, form, self.quote) if text else form for text, form in forms]
            return sequence(constant(f"{name}:"), either(*each)) if each else None

        return row_format(tool, hold, begin="{", between=",")
