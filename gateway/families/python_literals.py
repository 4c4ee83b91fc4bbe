"""Python literals, read as they arrive and said as JSON: ``{'a': [1, None]}`` becomes ``{"a": [1, null]}``.

Literals: https://docs.python.org/3/reference/lexical_analysis.html#literals, as far as JSON has them. Tuples and sets
are arrays; JSON's own words ``true``, ``false`` and ``null`` are taken too. A text that Python refuses, such as
``007``, is no literal here either.
"""

from __future__ import annotations

import re
from functools import partial

from gateway.families.json_calls import dumps
from gateway.families.markers import Markers
from gateway.families.text_source import Emit, Steps, TextSource

MAX_DEPTH = 64
"""Lists and dictionaries inside each other at most; deeper is malformed."""

_WORDS = {"True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null"}
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_DIGITS = "0123456789"
_HEX = _DIGITS + "abcdefABCDEF"
_SOME = r"[0-9](?:_?[0-9])*"
_INTEGER = re.compile(r"[+-]?(?:0(?:_?0)*|[1-9](?:_?[0-9])*)")
_FLOAT = re.compile(rf"([+-]?)({_SOME})?(?:\.({_SOME})?)?([eE][+-]?{_SOME})?")
_BASED = re.compile(r"([+-]?)0(?:[xX](?:_?[0-9a-fA-F])+|[oO](?:_?[0-7])+|[bB](?:_?[01])+)")
_LONGEST_NUMBER = 400
_ESCAPES = {
    "n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "a": "\a",
    "\\": "\\", "'": "'", '"': '"', "\n": "",
}  # fmt: skip
_CODES = {"x": 2, "u": 4, "U": 8}
_OCTAL = "01234567"
_QUOTES = frozenset("\"'")
_OPENING = frozenset("[({")
_ENDS = {end: Markers(end, "\\") for end in ('"', "'", '"""', "'''")}


def python_json(text: str) -> str:
    """The JSON text of a whole Python literal; empty where the text is none that JSON can say."""
    source = TextSource()
    source.push(text)
    source.end(cut=False)
    pieces: list[str] = []

    def read() -> Steps[None]:
        if not (yield from read_python_value(source, pieces.append)) or (yield from source.more()):
            pieces.clear()

    next(read(), None)  # to its end: no more text is waited for
    return "".join(pieces)


def read_python_value(source: TextSource, emit: Emit, depth: int = 0) -> Steps[bool]:
    """Read one literal.

    Args:
        source: at the literal, or at whitespace before it.
        emit: takes it as JSON text.
        depth: lists and dictionaries around it.

    Returns:
        Whether it is a whole literal that JSON can say.
    """
    yield from source.space()
    first = yield from source.peek()
    if first in _QUOTES:
        return (yield from read_python_string(source, emit))
    if first in _OPENING:
        read = {"[": _list, "(": _parenthesis, "{": _braces}[first]
        yield from source.take()
        return depth < MAX_DEPTH and (yield from read(source, emit, depth + 1))
    return (yield from read_python_scalar(source, emit, prefixes="rRuU"))


def read_python_scalar(source: TextSource, emit: Emit, *, prefixes: str = "") -> Steps[bool]:
    """Read a number or a word; other prefixes of strings make something that JSON cannot say.

    Args:
        source: at the literal.
        emit: takes it as JSON text.
        prefixes: letters that may stand before a string, which is read then.
    """
    word = yield from source.run(_LETTERS, 6)
    if word and word in prefixes and (yield from source.peek()) in _QUOTES:
        return (yield from read_python_string(source, emit, raw=word in "rR"))
    text = _WORDS.get(word, "") if word else _number((yield from source.run(_HEX + "+-._xXoO", _LONGEST_NUMBER)))
    emit(text)
    return bool(text)


def read_python_string(source: TextSource, emit: Emit, *, raw: bool = False) -> Steps[bool]:
    """Read a string with one or three quotes; a line end inside is taken as it is. Emits it as a JSON string.

    Args:
        source: at the quote.
        emit: takes the JSON text.
        raw: whether a backslash stands for itself.
    """
    quote = yield from source.take()
    if (yield from source.literal(quote * 2)):
        quote *= 3
    emit('"')
    while True:
        marker = yield from source.until(_ENDS[quote], partial(say_text, source, emit))
        if marker == quote:
            emit('"')
            return True
        if marker is None or not (yield from (_kept(source, emit) if raw else _escape(source, emit))):
            return False


def say_text(source: TextSource, emit: Emit, text: str) -> None:
    """Say a part of a string that was read as it stands between the quotes of a JSON string."""
    source.examined += len(text)
    emit(_json_text(text))


def _kept(source: TextSource, emit: Emit) -> Steps[bool]:
    """Read the character behind a backslash of a raw string, which stays, even before a quote."""
    character = yield from source.take()
    emit(_json_text("\\" + character))
    return bool(character)


def _escape(source: TextSource, emit: Emit) -> Steps[bool]:
    if digits := (yield from source.run(_OCTAL, 3)):
        emit(_json_text(chr(int(digits, 8))))
        return True
    character = yield from source.take()
    if character == "N":  # a character by its name
        return False
    length = _CODES.get(character)
    if length is None:
        known = _ESCAPES.get(character)
        emit(_json_text("\\" + character if known is None else known))
        return bool(character)
    digits = yield from source.run(_HEX, length)
    if len(digits) < length or int(digits, 16) > 0x10FFFF:
        return False
    code = int(digits, 16)
    # Halves of a surrogate pair stay escapes: together they are one character, which the reader of the JSON joins.
    emit(f"\\u{code:04x}" if 0xD800 <= code <= 0xDFFF else _json_text(chr(code)))
    return True


def _number(text: str) -> str:
    """A Python number as JSON's; empty when it is none."""
    if _INTEGER.fullmatch(text) or _BASED.fullmatch(text):
        return str(int(text, 0))
    match = _FLOAT.fullmatch(text)
    if not match:
        return ""
    sign, whole, fraction, exponent = (part.replace("_", "") if part else "" for part in match.groups())
    if not (whole or fraction) or not ("." in text or exponent):
        return ""
    return (
        ("-" if sign == "-" else "")
        + (whole.lstrip("0") or "0")
        + ("." + (fraction or "0") if "." in text else "")
        + exponent
    )


def _list(source: TextSource, emit: Emit, depth: int) -> Steps[bool]:
    emit("[")
    return (yield from _elements(source, emit, "]", depth)) and _said(emit, "]")


def _said(emit: Emit, text: str) -> bool:
    emit(text)
    return True


def _elements(source: TextSource, emit: Emit, closing: str, depth: int, *, first: bool = True) -> Steps[bool]:
    """Read values with commas between them, up to and including the closing bracket.

    Args:
        source: at a value, or behind one.
        emit: takes the values with commas.
        closing: the bracket.
        depth: lists and dictionaries around the values.
        first: whether there was none before.
    """
    while True:
        if not first:
            yield from source.space()
            comma = yield from source.literal(",")
        yield from source.space()
        if (yield from source.literal(closing)):
            return True
        if not first:
            if not comma:
                return False
            emit(", ")
        if not (yield from read_python_value(source, emit, depth)):
            return False
        first = False


def _parenthesis(source: TextSource, emit: Emit, depth: int) -> Steps[bool]:
    """Read a tuple, or a value that stands in parentheses for itself."""
    yield from source.space()
    if (yield from source.literal(")")):
        return _said(emit, "[]")
    pieces: list[str] = []
    if not (yield from read_python_value(source, pieces.append, depth)):
        return False
    yield from source.space()
    value = "".join(pieces)
    if (yield from source.literal(")")):
        return _said(emit, value)
    emit("[" + value)
    return (yield from _elements(source, emit, ")", depth, first=False)) and _said(emit, "]")


def _braces(source: TextSource, emit: Emit, depth: int) -> Steps[bool]:
    """Read a dictionary with strings as keys, or a set of values that are no collections."""
    yield from source.space()
    if (yield from source.literal("}")):
        return _said(emit, "{}")
    pieces: list[str] = []
    if (yield from source.peek()) in _OPENING or not (yield from read_python_value(source, pieces.append, depth)):
        return False
    yield from source.space()
    first = "".join(pieces)
    if (yield from source.peek()) == ":":
        return first.startswith('"') and (yield from _dictionary(source, emit, "{" + first, depth))
    emit("[" + first)
    # At this depth no collection is read: Python's sets hold none.
    return (yield from _elements(source, emit, "}", MAX_DEPTH, first=False)) and _said(emit, "]")


def _dictionary(source: TextSource, emit: Emit, begun: str, depth: int) -> Steps[bool]:
    """Read a dictionary behind its first key, which has been ``begun``."""
    emit(begun)
    while (yield from source.literal(":")):
        emit(": ")
        if not (yield from read_python_value(source, emit, depth)):
            return False
        yield from source.space()
        comma = yield from source.literal(",")
        yield from source.space()
        if (yield from source.literal("}")):
            return _said(emit, "}")
        if not comma or (yield from source.peek()) not in _QUOTES:
            return False
        emit(", ")
        if not (yield from read_python_string(source, emit)):
            return False
        yield from source.space()
    return False


def _json_text(text: str) -> str:
    """The text as it stands between the quotes of a JSON string."""
    return dumps(text)[1:-1]
