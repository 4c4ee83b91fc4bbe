"""Calls in Gemma's form: keys without quotes, and strings between two equal tokens.

<|tool_call>call:f{a:<|"|>x<|"|>,n:[1,{b:true}]}<tool_call|>
<start_function_call>call:f{a:<escape>x<escape>,n:1}<end_function_call>
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.text.families.bare_arguments import bare_forms, is_text, row_format, typed_json, types_of
from gateway.text.families.family import Tool
from gateway.text.families.family_parser import FamilyParser, Grammar
from gateway.text.families.json_calls import dumps, read_name
from gateway.text.families.literals import MAX_DEPTH, WORDS, LiteralReader, number_json
from gateway.text.families.markers import markers_of
from gateway.text.families.parser_events import FormingCall
from gateway.text.families.structural_tags import Format, either, sequence, tag
from gateway.text.families.text_source import SPACE, Emit, Steps, TextSource, need

_CALL = "call:"
_NO_KEY = frozenset("{}[],")
_CLOSING = {"{": "}", "[": "]"}
_QUOTES = frozenset("\"'")
_FORGOTTEN = re.compile(r"\s[^\s:]*:(?!//)")  # another key, behind a comma that is missing
_SCALARS = frozenset({"string", "integer", "number", "boolean", "null"})


@dataclass(frozen=True, kw_only=True)
class GemmaCalls(Grammar):
    """Reads calls in Gemma's form.

    Attributes:
        call: the form between the markers, ``call:NAMEARGUMENTS}``; ``ARGUMENTS`` includes the opening brace.
        quote: the token on both sides of a string.
        typed: whether arguments of other types are quoted, too; the tool's schema then gives their types.
    """

    quote: str
    typed: bool = False

    @property
    def markers(self) -> Sequence[str]:
        """All texts that only belong to the format."""
        return (*super().markers, self.quote)

    def read_call(self, parser: FamilyParser, call: FormingCall) -> Steps[None]:
        """Read a call behind its marker; see ``Grammar``."""
        source = parser.source
        yield from source.expect(_CALL)
        name = yield from read_name(source)
        begun = yield from source.spaced("{")
        need(begun or (yield from source.at_end(self.close, self._half_close)))
        call.named(name)
        parser.end_header()
        typed = parser.plan.parameters(name) or {} if self.typed else None
        values = _Values(source, call.arguments, self.quote, [*self.opens, self._half_close, *self.extra])
        if begun:
            yield from values.row_of("}", 1, typed)
        else:
            call.arguments("{}")
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
        """Remove the rest of the closing marker from a text; see ``Grammar``."""
        return raw.replace(self.close, "").replace(self._half_close, "")

    def hold(self, tool: Tool) -> Format | None:
        """Make the format of a tool's arguments; None where they cannot be constrained, as lists and objects."""

        def held(name: str, value: Mapping[str, Any]) -> Format | None:
            if not name or name != name.strip(SPACE) or any(mark in name for mark in (":", self.quote, *_NO_KEY)):
                return None
            forms = bare_forms(value) if types_of(value) <= _SCALARS else []
            each = [tag(self.quote, form, self.quote) if text else form for text, form in forms]
            return sequence(f"{name}:", either(*each)) if each else None

        return row_format(tool, held, begin="{", between=",")


class _Values(LiteralReader):
    """Reads the values of a call as models write them.

    A string stands between two quote tokens, or in JSON's or Python's quotes; numbers and words are Python's or JSON's,
    and any other text is a string.
    """

    def __init__(self, source: TextSource, emit: Emit, quote: str, markers: Sequence[str]) -> None:
        super().__init__(source, emit)
        self._quote = quote
        self._markers = markers_of(*markers)
        self._ends = markers_of(quote, *markers)
        self._bare_ends = markers_of(quote, *markers, *_NO_KEY)
        self._structure = self._bare_ends.also(":")

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
                return (yield from self._value(closing, depth))
            pieces: list[str] = []
            yield from self._quoted(closing, pieces.append)
            self.emit(typed_json(typed, key, "".join(pieces)))
            return True

        def member(separator: str) -> Steps[bool]:
            self.emit(separator)
            return (yield from self._value(closing, depth))

        self.emit("{" if closing == "}" else "[")
        yield from self.row(closing, pair if closing == "}" else member)
        self.emit(closing)

    def _key(self) -> Steps[str]:
        """Read a key, in quotes of any kind or not, and the colon; empty when there is none."""
        if (yield from self.source.literal(self._quote)):
            key, _ = yield from self.source.text_until(self._quote)
            return key if (yield from self.source.spaced(":")) else ""
        text, end = yield from self.source.seek(self._structure)
        if end != ":":
            return ""
        key = self.source.read(len(text) + 1)[:-1].strip(SPACE)
        return key[1:-1] if len(key) > 2 and key[0] == key[-1] and key[0] in _QUOTES else key

    def _value(self, closing: str, depth: int) -> Steps[bool]:
        """Read a value in a list or an object; returns whether it is a string, behind which models forget the comma."""
        if (yield from self.source.literal(self._quote)):
            self.emit('"')
            yield from self._quoted(closing, self.text)
            self.emit('"')
            return True
        if (mark := (yield from self.source.peek())) in _QUOTES:
            _, end = yield from self.source.seek(self._markers.also(mark), 1)
            need(end == mark)  # before the next call
            yield from self.string()
            return True
        opening = yield from self.source.choice(*_CLOSING)
        need(not opening or depth < MAX_DEPTH)
        yield from self.row_of(_CLOSING[opening], depth + 1) if opening else self._bare(closing)
        return False

    def _bare(self, closing: str) -> Steps[None]:
        """Read a number, a word or a text without quotes, up to what follows a value."""
        text, end = yield from self.source.seek(self._bare_ends)
        bare = text.strip(SPACE)
        need(bare.lstrip(":"))
        self.source.read(len(text))
        self.emit(WORDS.get(bare) or (number_json(bare) if bare.isascii() else "") or dumps(bare))
        need(end in {",", closing} and not _FORGOTTEN.search(bare))

    def _quoted(self, closing: str, emit: Emit) -> Steps[None]:
        """Read a string behind its quote token, and the token that ends it; others in it are quotation marks.

        Where a marker of the format stands in it, the first token ends it: it may have been left open.
        """
        source = self.source
        marked = False
        while need(found := (yield from source.until(self._ends, emit))) != self._quote:
            emit(found or "")
            marked = True
        while not (marked or (yield from self._ended(closing))):
            text, token = yield from source.seek(self._ends)
            if token != self._quote:
                return
            source.read(len(text + token))
            emit(f'"{text}')

    def _ended(self, closing: str) -> Steps[bool]:
        """Whether what follows a quote token may follow a value, so that the token ends its string."""
        text, mark = yield from self.source.seek(self._structure)
        comma, at = mark == "," and not text.strip(SPACE), len(text + mark)
        if comma:
            text, mark = yield from self.source.seek(self._structure, at)
        blank = not text.strip(SPACE)
        if blank and mark == self._quote and closing == "}":  # of a key, the comma before it may be missing
            text, _ = yield from self.source.seek(markers_of(self._quote), at)
            at += len(text + self._quote)
            text, mark = yield from self.source.seek(self._structure, at)
            return mark == ":" and not text.strip(SPACE)
        if mark == closing:
            return blank or (comma and closing == "]")
        if closing == "}":
            return mark == ":" and not blank
        if mark == self._quote and blank:  # of the next string, which stands behind a comma or a space
            return comma or bool(text)
        return comma and (mark == "," or (blank and mark in _CLOSING))
