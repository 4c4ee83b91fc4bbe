"""Literals, read as they arrive and said as JSON: ``{'a': [1, None]}`` becomes ``{"a": [1, null]}``.

Python's: https://docs.python.org/3/reference/lexical_analysis.html#literals, as far as JSON has them. Tuples and sets
are arrays; JSON's own words ``true``, ``false`` and ``null`` are taken too. A text that Python refuses, such as
``007``, is no literal here either. All that read here raise ``BrokenCallError`` for what JSON cannot say.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from gateway.families.json_calls import dumps
from gateway.families.markers import Markers
from gateway.families.text_source import BrokenCallError, Emit, Steps, TextSource

MAX_DEPTH = 64
"""Lists and dictionaries inside each other at most; deeper is malformed."""

WORDS = {"True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null"}
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_HEX = "0123456789abcdefABCDEF"
_SOME = r"[0-9](?:_?[0-9])*"
_FLOAT = re.compile(rf"([+-]?)({_SOME})?(?:\.({_SOME})?)?([eE][+-]?{_SOME})?")
_LONGEST_NUMBER = 400
_ESCAPES = {
    "n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "a": "\a",
    "\\": "\\", "'": "'", '"': '"', "\n": "",
}  # fmt: skip
_CODES = {"x": 2, "u": 4, "U": 8}
_QUOTES = frozenset("\"'")
_CLOSING = {"[": "]", "(": ")", "{": "}"}
_ENDS = {end: Markers(end, "\\") for end in ('"', "'", '"""', "'''")}


def python_json(text: str) -> str:
    """The JSON text of a whole Python literal; empty where the text is none that JSON can say."""
    source = TextSource()
    source.push(text)
    source.end(cut=False)
    pieces: list[str] = []

    def read() -> Steps[None]:
        yield from read_python_value(source, pieces.append)
        if (yield from source.more()):
            raise BrokenCallError

    try:
        next(read(), None)  # to its end: no more text is waited for
    except BrokenCallError:
        return ""
    return "".join(pieces)


def read_python_value(source: TextSource, emit: Emit, depth: int = 0) -> Steps[None]:
    """Read one literal.

    Args:
        source: at the literal, or at whitespace before it.
        emit: takes it as JSON text.
        depth: lists and dictionaries around it.
    """
    yield from source.space()
    first = yield from source.peek()
    if first in _QUOTES:
        yield from read_python_string(source, emit)
    elif first not in _CLOSING:
        yield from read_python_scalar(source, emit, prefixes="rRuU")
    elif depth == MAX_DEPTH:
        raise BrokenCallError
    else:
        yield from source.take()
        yield from _collection(source, emit, _CLOSING[first], depth + 1)


def read_python_scalar(source: TextSource, emit: Emit, *, prefixes: str = "") -> Steps[None]:
    """Read a number or a word; other prefixes of strings make something that JSON cannot say.

    Args:
        source: at the literal.
        emit: takes it as JSON text.
        prefixes: letters that may stand before a string, which is read then.
    """
    word = yield from source.run(_LETTERS, 6)
    if word and word in prefixes and (yield from source.peek()) in _QUOTES:
        return (yield from read_python_string(source, emit, raw=word in "rR"))
    text = WORDS.get(word, "") if word else _number((yield from source.run(_HEX + "+-._xXoO", _LONGEST_NUMBER)))
    if not text:
        raise BrokenCallError
    emit(text)


def read_python_string(source: TextSource, emit: Emit, *, raw: bool = False) -> Steps[None]:
    """Read a string with one or three quotes; a line end inside is taken as it is. Emits it as a JSON string.

    Args:
        source: at the quote.
        emit: takes the JSON text.
        raw: whether a backslash stands for itself, even before a quote.
    """
    quote = yield from source.take()
    if (yield from source.literal(quote * 2)):
        quote *= 3
    emit('"')
    while (marker := (yield from source.until(_ENDS[quote], partial(say_text, source, emit)))) != quote:
        if marker is None:
            raise BrokenCallError
        emit(_json_text("\\" + (yield from source.take())) if raw else (yield from _escape(source)))
    emit('"')


def say_text(source: TextSource, emit: Emit, text: str) -> None:
    """Say a part of a string that was read as it stands between the quotes of a JSON string."""
    source.examined += len(text)
    emit(_json_text(text))


def _escape(source: TextSource) -> Steps[str]:
    """Read what is behind a backslash; returns it as JSON text."""
    if digits := (yield from source.run("01234567", 3)):
        return _json_text(chr(int(digits, 8)))
    character = yield from source.take()
    if character not in _CODES:
        if character in {"", "N"}:  # a character by its name
            raise BrokenCallError
        return _json_text(_ESCAPES.get(character, "\\" + character))
    digits = yield from source.run(_HEX, _CODES[character])
    if len(digits) < _CODES[character] or int(digits, 16) > 0x10FFFF:
        raise BrokenCallError
    code = int(digits, 16)
    # Halves of a surrogate pair stay escapes: together they are one character, which the reader of the JSON joins.
    return f"\\u{code:04x}" if 0xD800 <= code <= 0xDFFF else _json_text(chr(code))


def _number(text: str) -> str:
    """A Python number as JSON's; empty when it is none."""
    with suppress(ValueError):
        return str(int(text, 0))
    match = _FLOAT.fullmatch(text)
    if not match:
        return ""
    sign, whole, fraction, exponent = (part.replace("_", "") if part else "" for part in match.groups())
    if not (whole or fraction) or not ("." in text or exponent):
        return ""
    return sign.strip("+") + (whole.lstrip("0") or "0") + ("." + (fraction or "0") if "." in text else "") + exponent


def read_row(
    source: TextSource, closing: str, member: Callable[[str], Steps[bool | None]], *, begun: bool = False
) -> Steps[None]:
    """Read members with commas between them, up to and including the closing bracket.

    Args:
        source: at a member, or behind one.
        closing: the bracket.
        member: reads one, and says it behind the separator that it is given; returns whether the comma behind it may
            be missing.
        begun: whether there was one before.
    """
    more = not begun or (yield from source.spaced(","))
    while not (yield from source.spaced(closing)):
        if not more:
            raise BrokenCallError
        forgiving = yield from member(", " if begun else "")
        more = (yield from source.spaced(",")) or bool(forgiving)
        begun = True


def _collection(source: TextSource, emit: Emit, closing: str, depth: int) -> Steps[None]:
    """Read a collection behind its opening bracket; what it is in other brackets than a list's, its begin tells."""

    def member(separator: str, inner: int = depth) -> Steps[None]:
        emit(separator)
        yield from read_python_value(source, emit, inner)

    if closing == "]":
        emit("[")
        yield from read_row(source, closing, member)
        return emit("]")
    if (yield from source.spaced(closing)):
        return emit("{}" if closing == "}" else "[]")
    # Neither a key nor a member of a set is a collection: at this depth none is read.
    inner = MAX_DEPTH if closing == "}" else depth
    pieces: list[str] = []
    yield from read_python_value(source, pieces.append, inner)
    first = "".join(pieces)
    if closing == ")" and (yield from source.spaced(closing)):
        return emit(first)  # a value in parentheses
    if closing == "}" and (yield from source.spaced(":")):
        return (yield from _dictionary(source, emit, first, depth))
    emit("[" + first)
    yield from read_row(source, closing, partial(member, inner=inner), begun=True)
    return emit("]")


def _dictionary(source: TextSource, emit: Emit, first: str, depth: int) -> Steps[None]:
    """Read a dictionary behind the colon of its first key."""

    def pair(separator: str) -> Steps[None]:
        if (yield from source.peek()) not in _QUOTES:
            raise BrokenCallError
        emit(separator)
        yield from read_python_string(source, emit)
        yield from source.expect(":")
        emit(": ")
        yield from read_python_value(source, emit, depth)

    if not first.startswith('"'):
        raise BrokenCallError
    emit("{" + first + ": ")
    yield from read_python_value(source, emit, depth)
    yield from read_row(source, "}", pair, begun=True)
    emit("}")


def _json_text(text: str) -> str:
    """The text as it stands between the quotes of a JSON string."""
    return dumps(text)[1:-1]
