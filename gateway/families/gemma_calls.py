"""Calls in the form of Gemma: keys without quotes, and strings between two equal tokens.

<|tool_call>call:f{a:<|"|>x<|"|>,n:[1,{b:true}]}<tool_call|>
<start_function_call>call:f{a:<escape>x<escape>,n:1}<end_function_call>
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from gateway.families.bare_arguments import bare_forms, is_text, row_format, typed_json, types_of
from gateway.families.family_parser import FamilyParser, Grammar
from gateway.families.json_calls import dumps, read_name
from gateway.families.literals import MAX_DEPTH, read_python_scalar, read_row, say_text
from gateway.families.markers import markers_of
from gateway.families.parser_events import FormingCall
from gateway.families.structural_tags import CallFormat, Format, constant, either, sequence, tag
from gateway.families.text_source import SPACE, BrokenCallError, Emit, Steps, TextSource
from gateway.families.tool_plan import Tool

_CALL = "call:"
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

    def read_call(self, parser: FamilyParser, call: FormingCall) -> Steps[None]:
        """Read a call behind its marker; see ``Grammar``."""
        source = parser.source
        yield from source.expect(_CALL)
        name = yield from read_name(source)
        yield from source.expect("{")
        call.named(name)
        parser.end_header()
        typed = parser.plan.parameters(name) or {} if self.typed else None
        yield from self._object(source, call.arguments, 1, typed)
        call.complete()
        yield from source.spaced(self.close)

    def _object(
        self, source: TextSource, emit: Emit, depth: int, typed: Mapping[str, Any] | None = None
    ) -> Steps[None]:
        """Read keys and values behind a brace, up to and including the one that closes it.

        Args:
            source: behind the brace.
            emit: takes the JSON text.
            depth: objects and lists here, this one among them.
            typed: the schema that tells the types of values between quotes; None: they are strings.
        """
        keys: set[str] = set()

        def pair(separator: str) -> Steps[bool]:
            key = yield from self._key(source)
            if not key or key in keys:
                raise BrokenCallError
            emit(f"{separator}{dumps(key)}: ")
            keys.add(key)
            yield from source.space()
            told = typed if typed is not None and not is_text(typed, key) else None
            return (yield from self._value(source, emit, depth, told, key))  # models forget the comma behind a quote

        emit("{")
        yield from read_row(source, "}", pair)
        emit("}")

    def _key(self, source: TextSource) -> Steps[str]:
        """Read a key, between quotes or not, and the colon; empty when there is none."""
        if (yield from source.literal(self.quote)):
            key, _ = yield from source.text_until(self.quote)
            return key if (yield from source.spaced(":")) else ""
        key, end = yield from source.text_until(":", self.quote, *_NO_KEY)
        return key.strip(SPACE) if end == ":" else ""

    def _value(
        self, source: TextSource, emit: Emit, depth: int, typed: Mapping[str, Any] | None = None, key: str = ""
    ) -> Steps[bool]:
        """Read a value; returns whether it stood between quotes. ``typed``: the schema that tells its type there."""
        if (yield from source.literal(self.quote)):
            yield from self._quoted(source, emit, typed, key)
            return True
        if depth >= MAX_DEPTH:
            raise BrokenCallError
        if (yield from source.literal("{")):
            yield from self._object(source, emit, depth + 1)
        elif (yield from source.literal("[")):
            yield from self._list(source, emit, depth + 1)
        else:
            yield from read_python_scalar(source, emit)
        return False

    def _list(self, source: TextSource, emit: Emit, depth: int) -> Steps[None]:
        def member(separator: str) -> Steps[None]:
            emit(separator)
            yield from self._value(source, emit, depth)

        emit("[")
        yield from read_row(source, "]", member)
        emit("]")

    def _quoted(self, source: TextSource, emit: Emit, typed: Mapping[str, Any] | None, key: str) -> Steps[None]:
        """Read a string behind its quote, or a value of any type; it ends at the next one, whatever stands in it."""
        if typed is not None:
            text, end = yield from source.text_until(self.quote)
            source.examined += len(text)
            emit(typed_json(typed, key, text) if end else "")
        else:
            emit('"')
            end = yield from source.until(markers_of(self.quote), partial(say_text, source, emit))
            emit('"' if end else "")
        if end is None:
            raise BrokenCallError

    def _arguments(self, tool: Tool) -> Format | None:
        """The arguments of a tool, with the opening brace; None where they cannot be held, as lists and objects."""

        def hold(name: str, value: Mapping[str, Any]) -> Format | None:
            if not name or name != name.strip(SPACE) or any(mark in name for mark in (":", self.quote, *_NO_KEY)):
                return None
            forms = bare_forms(value) if types_of(value) <= _SCALARS else []
            each = [tag(self.quote, form, self.quote) if text else form for text, form in forms]
            return sequence(constant(f"{name}:"), either(*each)) if each else None

        return row_format(tool, hold, begin="{", between=",")
