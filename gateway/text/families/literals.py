"""Reads Python literals as they arrive and writes JSON: ``{'a': [1, None]}`` becomes ``{"a": [1, null]}``.

Grammar: https://docs.python.org/3/reference/lexical_analysis.html#literals, as far as JSON has the values. Tuples and
sets are arrays; JSON's words ``true``, ``false`` and ``null`` are accepted too. A text that Python rejects, such as
``007``, is not a literal.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress

from gateway.text.families.json_calls import dumps
from gateway.text.families.markers import Markers
from gateway.text.families.text_source import BrokenCallError, Emit, Steps, TextSource, need

MAX_DEPTH = 64
"""Lists and dictionaries inside each other at most; deeper is malformed."""

WORDS = {"True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null"}
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_HEX = "0123456789abcdefABCDEF"
_SOME = r"[0-9](?:_?[0-9])*"
_FLOAT = re.compile(rf"([+-]?)({_SOME})?(?:\.({_SOME})?)?([eE][+-]?{_SOME})?")
_NUMBER = _HEX + "+-._xXoO"
_LONGEST_NUMBER = 400
_ESCAPES = {
    "n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "a": "\a",
    "\\": "\\", "'": "'", '"': '"', "\n": "",
}  # fmt: skip
_CODES = {"x": 2, "u": 4, "U": 8}
_QUOTES = frozenset("\"'")
_CLOSING = {"[": "]", "(": ")", "{": "}"}
_ENDS = {end: Markers(end, "\\") for end in ('"', "'", '"""', "'''")}


class LiteralReader:
    """Reads literals; all methods raise ``BrokenCallError`` for values that JSON does not have."""

    def __init__(self, source: TextSource, emit: Emit) -> None:
        self.source = source
        self.emit = emit  # takes the JSON text

    def value(self, depth: int = 0) -> Steps[None]:
        """Read one literal inside of ``depth`` lists and dictionaries."""
        first = yield from self.source.ahead()
        if first in _QUOTES:
            yield from self.string()
        elif first not in _CLOSING:
            yield from self.scalar(prefixes="rRuU")
        else:
            need(depth < MAX_DEPTH)
            yield from self.source.take()
            yield from self._collection(_CLOSING[first], depth + 1)

    def scalar(self, *, prefixes: str = "") -> Steps[None]:
        """Read a number, a word, or a string with one of the prefixes."""
        word = yield from self.source.run(_LETTERS, 6)
        if word and word in prefixes and (yield from self.source.peek()) in _QUOTES:
            return (yield from self.string(raw=word in "rR"))
        text = WORDS.get(word, "") if word else number_json((yield from self.source.run(_NUMBER, _LONGEST_NUMBER)))
        self.emit(need(text))

    def string(self, *, raw: bool = False) -> Steps[None]:
        """Read a string with one or three quotes; line ends inside are accepted.

        ``raw``: whether a backslash stands for itself, even before a quote.
        """
        quote = yield from self.source.take()
        if (yield from self.source.literal(quote * 2)):
            quote *= 3
        self.emit('"')
        while need((yield from self.source.until(_ENDS[quote], self.text))) != quote:
            self.emit(_json_text("\\" + (yield from self.source.take())) if raw else (yield from self._escape()))
        self.emit('"')

    def text(self, text: str) -> None:
        """Write a part of a string as it stands between the quotes of a JSON string."""
        self.source.examined += len(text)
        self.emit(_json_text(text))

    def row(self, closing: str, member: Callable[[str], Steps[object]], *, begun: bool = False) -> Steps[None]:
        """Read members with commas between them, up to and including the closing bracket.

        ``member`` reads one and writes it behind a given separator; it returns whether the comma behind may be missing.
        ``begun``: whether a member came before.
        """
        more: object = not begun or (yield from self.source.spaced(","))
        while not (yield from self.source.spaced(closing)):
            need(more)
            forgiving = yield from member(", " if begun else "")
            more = (yield from self.source.spaced(",")) or forgiving
            begun = True

    def _escape(self) -> Steps[str]:
        """Read what is behind a backslash; returns it as JSON text."""
        if digits := (yield from self.source.run("01234567", 3)):
            return _json_text(chr(int(digits, 8)))
        character = yield from self.source.take()
        if character not in _CODES:
            need(character and character != "N")  # a character by its name
            return _json_text(_ESCAPES.get(character, "\\" + character))
        digits = yield from self.source.run(_HEX, _CODES[character])
        need(len(digits) == _CODES[character] and int(digits, 16) <= 0x10FFFF)
        code = int(digits, 16)
        # Halves of a surrogate pair stay escapes: together they are one character, which the reader of the JSON joins.
        return f"\\u{code:04x}" if 0xD800 <= code <= 0xDFFF else _json_text(chr(code))

    def _collection(self, closing: str, depth: int) -> Steps[None]:
        """Read a collection behind its opening bracket; what it is in other brackets than a list's, its begin tells."""
        pairs: object = False
        first, listed = "", closing == "]"
        inner = MAX_DEPTH if closing == "}" else depth  # keys and members of sets are not collections
        if not listed:
            if (yield from self.source.spaced(closing)):
                return self.emit("{}" if closing == "}" else "[]")
            pieces: list[str] = []
            yield from LiteralReader(self.source, pieces.append).value(inner)
            first = "".join(pieces)
            if closing == ")" and (yield from self.source.spaced(closing)):
                return self.emit(first)  # a value in parentheses
            pairs = closing == "}" and first.startswith('"') and (yield from self.source.spaced(":"))

        def member(separator: str) -> Steps[None]:
            if not pairs:
                self.emit(separator)
                return (yield from self.value(inner))
            need((yield from self.source.peek()) in _QUOTES)
            self.emit(separator)
            yield from self.string()
            yield from self.source.expect(":")
            self.emit(": ")
            yield from self.value(depth)

        self.emit("{" + first + ": " if pairs else "[" + first)
        if pairs:
            yield from self.value(depth)
        yield from self.row(closing, member, begun=not listed)
        return self.emit("}" if pairs else "]")


def python_json(text: str) -> str:
    """Convert a whole Python literal to JSON; empty where JSON has no such value."""
    source = TextSource()
    source.push(text)
    source.end(cut=False)
    pieces: list[str] = []

    def read() -> Steps[None]:
        yield from LiteralReader(source, pieces.append).value()
        need(not (yield from source.more()))

    with suppress(BrokenCallError):
        next(read(), None)  # to its end: no more text is waited for
        return "".join(pieces)
    return ""


def number_json(text: str) -> str:
    """Convert a Python number to JSON; empty for other texts."""
    with suppress(ValueError):
        return str(int(text, 0))
    match = _FLOAT.fullmatch(text)
    if not match:
        return ""
    sign, whole, fraction, exponent = (part.replace("_", "") if part else "" for part in match.groups())
    if not (whole or fraction) or not ("." in text or exponent):
        return ""
    return sign.strip("+") + (whole.lstrip("0") or "0") + ("." + (fraction or "0") if "." in text else "") + exponent


def _json_text(text: str) -> str:
    """The text as it stands between the quotes of a JSON string."""
    return dumps(text)[1:-1]
