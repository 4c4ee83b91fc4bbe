"""Custom tools as functions with one argument: the tool's input, a text."""

from __future__ import annotations

import re
from typing import Any, Literal

import orjson
from pydantic_core import from_json

from gateway.text.bad_request import BadRequestError
from gateway.text.guides import check_schema

_INPUT = "input"
_BEGINNING = re.compile(r'[ \t\r\n]*\{[ \t\r\n]*"input"[ \t\r\n]*:[ \t\r\n]*"')
_PLAIN = re.compile(r'[^"\\]*')
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_UNPAIRED = "\ufffd"
_HALVES, _FIRST_HALVES = range(0xD800, 0xE000), range(0xD800, 0xDC00)  # of characters beyond 16 bits


def input_schema(pattern: str | None = None) -> dict[str, Any]:
    """Make the schema of the arguments of a custom tool's function.

    Args:
        pattern: a regular expression that all of the input must fit.
    """
    text: dict[str, Any] = {"type": "string", "description": "The whole input of the tool, as plain text."}
    if pattern is not None:
        text["pattern"] = f"^(?:{pattern})$"
    return {"type": "object", "properties": {_INPUT: text}, "required": [_INPUT], "additionalProperties": False}


def described(description: str | None, syntax: Literal["lark", "regex"], definition: str) -> str:
    """Make the description of a tool whose input has a grammar, for the model."""
    grammar = f"The input follows this grammar ({syntax}):\n{definition}"
    return f"{description}\n\n{grammar}" if description else grammar


def is_pattern(text: str) -> bool:
    """Tell whether a schema can have this expression as its pattern."""
    try:
        check_schema({"type": "string", "pattern": text}, "pattern")
    except BadRequestError:
        return False
    return True


def arguments_of(text: str) -> str:
    """Write the arguments of a custom tool's function from the tool's input, as JSON."""
    return orjson.dumps({_INPUT: text}).decode()


class InputReader:
    """Reads a custom tool's input from the arguments of its function while they arrive.

    Arguments that begin with a string named ``input`` have this string as the input, which is returned as it arrives.
    Other arguments are read at their end: the input is their only string, whatever its name, or else the JSON text of
    all of them. Any chunking gives the same input.
    """

    __slots__ = ("_begun", "_ended", "_held")

    def __init__(self) -> None:
        """Begin before the first character."""
        self._held = ""  # text not yet read
        self._begun = self._ended = False

    def push(self, arguments: str) -> str:
        """Add arguments; returns the part of the input that is certain now."""
        if self._ended:
            return ""
        self._held += arguments
        if not self._begun:
            found = _BEGINNING.match(self._held)
            if found is None:
                return ""
            self._begun, self._held = True, self._held[found.end() :]
        return self._text()

    def finish(self) -> str:
        """End the arguments, which may be cut; returns the rest of the input."""
        held, self._held = self._held, ""
        if self._begun:
            return ""
        return _other(held)

    def _text(self) -> str:
        """Read on in the string; an escape that is not whole is held."""
        held, parts, at = self._held, [], 0
        while at < len(held):
            plain = _PLAIN.match(held, at)
            if plain is not None and plain.end() > at:
                parts.append(plain[0])
                at = plain.end()
            elif held[at] == '"':
                self._ended, at = True, len(held)
            else:
                length, text = _escape(held[at : at + 12])
                if not length:
                    break
                parts.append(text)
                at += length
        self._held = held[at:]
        return "".join(parts)


def _escape(text: str) -> tuple[int, str]:
    """The length and the meaning of the escape that a text begins with; 0 where more of it must come first."""
    if text[1:2] == "u":
        return _unicode(text) if len(text) >= 6 else (0, "")
    return (2, _ESCAPES.get(text[1], text[1])) if len(text) > 1 else (0, "")


def _unicode(text: str) -> tuple[int, str]:
    """The same of an escape with a UTF-16 unit, which may be half a character."""
    unit = _unit(text[2:6])
    if unit not in _HALVES:
        return 6, chr(unit)
    if len(text) < 12 and unit in _FIRST_HALVES and "\\u".startswith(text[6:8]):
        return 0, ""
    low = _unit(text[8:12]) if text[6:8] == "\\u" else unit
    if unit not in _FIRST_HALVES or low not in _HALVES or low in _FIRST_HALVES:
        return 6, _UNPAIRED
    return 12, chr(0x10000 + ((unit - 0xD800) << 10) + low - 0xDC00)


def _unit(digits: str) -> int:
    """A UTF-16 unit; that of the replacement character where the digits are none."""
    try:
        return int(digits, 16)
    except ValueError:
        return ord(_UNPAIRED)


def _other(arguments: str) -> str:
    try:
        value = from_json(arguments, allow_partial="trailing-strings")
    except ValueError:
        return arguments
    if isinstance(value, dict):
        only = value.get(_INPUT, *value.values()) if len(value) == 1 else value.get(_INPUT)
        if isinstance(only, str):
            return only
    return arguments
