"""One JSON value, scanned as its text arrives. Strict RFC 8259; a value is never parsed a second time.

What the scanner takes, ``json.loads`` takes too; the scanner does not build the value.
"""

from __future__ import annotations

import re
from typing import Literal

MAX_DEPTH = 128
"""Arrays and objects inside each other at most; deeper is malformed."""

_SPACE = re.compile(r"[ \t\r\n]*")
_PLAIN = re.compile(r'[^"\\\x00-\x1f]*')
_DIGITS = re.compile(r"[0-9]*")
_HEX = frozenset("0123456789abcdefABCDEF")
_WORDS = {"t": "rue", "f": "alse", "n": "ull"}
# States in which a number may end.
_NUMBER_ENDS = frozenset({"zero", "integer", "fraction", "exponent"})

Kind = Literal["object", "array", "string", "number", "word"]


class JsonScanner:
    """Scans one value.

    Attributes:
        complete: whether the value has ended. A number at the top ends only before another character or at the end.
        failed: whether the text cannot become a JSON value.
        kind: of the value, None until its first character.
    """

    __slots__ = ("_hex", "_key", "_number", "_stack", "_state", "_word", "complete", "failed", "kind")

    def __init__(self) -> None:
        self._stack: list[str] = []
        self._state = "value"
        self._key = False
        self._word = ""
        self._hex = 0
        self._number = ""
        self.complete = False
        self.failed = False
        self.kind: Kind | None = None

    def scan(self, text: str, at: int) -> int:
        """Read as much of ``text`` as belongs to the value.

        Args:
            text: holds more of the value.
            at: where it goes on.

        Returns:
            The index after the last character that was read. When ``failed``, the character there is the wrong one.
        """
        length = len(text)
        while at < length and not self.complete and not self.failed:
            state = self._state
            if state == "string":
                at = self._string(text, at)
            elif state == "number":
                at = self._in_number(text, at)
            elif state in {"escape", "hex", "word"}:
                at = self._inside(text[at], at)
            else:
                at = _SPACE.match(text, at).end()  # type: ignore[union-attr]  # it matches the empty string too
                if at < length:
                    at = self._structure(text[at], at)
        return at

    def end(self) -> bool:
        """End the text; returns whether the value is complete, as a number at the top may be."""
        if self._state == "number" and not self._stack and self._number in _NUMBER_ENDS:
            self.complete = True
        return self.complete

    def _structure(self, character: str, at: int) -> int:
        """Read a character outside strings, numbers and words that is not whitespace."""
        state = self._state
        if state == "colon" and character == ":":
            self._state = "value"
            return at + 1
        if state in {"first key", "key"}:
            if character == '"':
                self._key, self._state = True, "string"
                return at + 1
            return self._close(at) if state == "first key" and character == "}" else self._fail(at)
        if state == "after" and character == ",":
            self._state = "key" if self._stack[-1] == "}" else "value"
            return at + 1
        if state in {"after", "first value"} and character == self._stack[-1]:
            return self._close(at)
        return self._fail(at) if state in {"after", "colon"} else self._value(character, at)

    def _value(self, character: str, at: int) -> int:
        kind: Kind
        if character in "{[":
            if len(self._stack) == MAX_DEPTH:
                return self._fail(at)
            kind = "object" if character == "{" else "array"
            self._stack.append("}" if character == "{" else "]")
            self._state = "first key" if character == "{" else "first value"
        elif character == '"':
            kind, self._state = "string", "string"
        elif character in _WORDS:
            kind, self._state, self._word = "word", "word", _WORDS[character]
        elif character == "-" or "0" <= character <= "9":
            kind, self._state = "number", "number"
            self._number = "minus" if character == "-" else "zero" if character == "0" else "integer"
        else:
            return self._fail(at)
        self.kind = self.kind or kind
        return at + 1

    def _string(self, text: str, at: int) -> int:
        at = _PLAIN.match(text, at).end()  # type: ignore[union-attr]  # it matches the empty string too
        if at == len(text):
            return at
        if text[at] == "\\":
            self._state = "escape"
        elif text[at] != '"':
            return self._fail(at)
        elif self._key:
            self._key, self._state = False, "colon"
        else:
            self._ended()
        return at + 1

    def _inside(self, character: str, at: int) -> int:
        if self._state == "word":
            if character != self._word[0]:
                return self._fail(at)
            self._word = self._word[1:]
            if not self._word:
                self._ended()
        elif self._state == "hex":
            if character not in _HEX:
                return self._fail(at)
            self._hex -= 1
            if not self._hex:
                self._state = "string"
        elif character == "u":
            self._state, self._hex = "hex", 4
        elif character in '"\\/bfnrt':
            self._state = "string"
        else:
            return self._fail(at)
        return at + 1

    def _in_number(self, text: str, at: int) -> int:
        character, number = text[at], self._number
        if "0" <= character <= "9" and number != "zero":
            begun = "zero" if character == "0" else "integer"
            self._number = begun if number == "minus" else _AFTER_DIGIT.get(number, number)
            # A leading zero stands alone; all other digits come in runs.
            return at + 1 if self._number == "zero" else _DIGITS.match(text, at).end()  # type: ignore[union-attr]
        following = _AFTER_SIGN.get((number, character))
        if following is not None:
            self._number = following
            return at + 1
        if number not in _NUMBER_ENDS:
            return self._fail(at)
        self._ended()  # the character belongs to what follows
        return at

    def _close(self, at: int) -> int:
        self._stack.pop()
        self._ended()
        return at + 1

    def _ended(self) -> None:
        self._state = "after"
        self.complete = not self._stack

    def _fail(self, at: int) -> int:
        self.failed = True
        return at


_AFTER_DIGIT = {"point": "fraction", "mark": "exponent", "sign": "exponent"}
_AFTER_SIGN = {
    **{(number, "."): "point" for number in ("zero", "integer")},
    **{(number, mark): "mark" for number in ("zero", "integer", "fraction") for mark in "eE"},
    **{("mark", sign): "sign" for sign in "+-"},
}


def json_kind(text: str) -> Kind | None:
    """The kind of the JSON value that a text is, without space around it; None where it is none."""
    scanner = JsonScanner()
    end = scanner.scan(text, 0)
    return scanner.kind if not scanner.failed and scanner.end() and end == len(text) else None
