"""Scans one JSON value while its text arrives, without building it. Strict RFC 8259.

What the scanner accepts, ``json.loads`` accepts too.
"""

from __future__ import annotations

import re

MAX_DEPTH = 128
"""Arrays and objects inside each other at most; deeper is malformed."""

_DIGITS = "0123456789"
_HEX = _DIGITS + "abcdefABCDEF"
_NUMBER_ENDS = frozenset({"zero", "integer", "fraction", "exponent"})  # the states in which a number may end

_VALUE = "value|first value"
# States, the characters that may come there, and the state behind one of them; or what is done then: an array or an
# object "opens" or "closes", a value has "ended", another one is "next". "name" is a string that is a key.
_ROWS = [
    (_VALUE, "{[", "opens"),
    (_VALUE, '"', "string"),
    (_VALUE, "-", "minus"),
    (f"{_VALUE}|minus", "0", "zero"),
    (f"{_VALUE}|minus", "123456789", "integer"),
    ("integer", _DIGITS, "integer"),
    ("zero|integer", ".", "point"),
    ("point|fraction", _DIGITS, "fraction"),
    ("zero|integer|fraction", "eE", "mark"),
    ("mark", "+-", "sign"),
    ("mark|sign|exponent", _DIGITS, "exponent"),
    ("string", '"', "ended"),
    ("first key|key", '"', "name"),
    ("name", '"', "colon"),
    ("colon", ":", "value"),
    ("first key|after", "}", "closes"),
    ("first value|after", "]", "closes"),
    ("after", ",", "next"),
]
for _word in ("true", "false", "null"):
    _ROWS += [(_word[at:] if at else _VALUE, _word[at], _word[at + 1 :] or "ended") for at in range(len(_word))]
for _text in ("string", "name"):
    _ROWS += [(_text, "\\", f"{_text} escape"), (f"{_text} escape", '"\\/bfnrt', _text)]
    _ROWS += [(f"{_text} escape", "u", f"{_text} 4"), (f"{_text} 1", _HEX, _text)]
    _ROWS += [(f"{_text} {left}", _HEX, f"{_text} {left - 1}") for left in (4, 3, 2)]
# What may stand in a state, as much as there is, without leaving it.
_RUNS = {
    **dict.fromkeys(("value", "first value", "first key", "key", "colon", "after"), re.compile(r"[ \t\r\n]*")),
    **dict.fromkeys(("string", "name"), re.compile(r'[^"\\\x00-\x1f]*')),
    **dict.fromkeys(("integer", "fraction", "exponent"), re.compile(r"[0-9]*")),
}
_MOVES: dict[str, dict[str, str]] = {}
for _states, _characters, _following in _ROWS:
    for _state in _states.split("|"):
        _MOVES.setdefault(_state, {}).update(dict.fromkeys(_characters, _following))


class JsonScanner:
    """Scans one value.

    ``complete`` is set at its end: a number at the top ends only before another character, or at the end of the text.
    ``failed`` is set when the text cannot become a JSON value.
    """

    __slots__ = ("_stack", "_state", "complete", "failed")

    def __init__(self) -> None:
        self._stack: list[str] = []  # the brackets that close what is open
        self._state = "value"
        self.complete = self.failed = False

    def scan(self, text: str, at: int) -> int:
        """Scan the part of ``text`` from the index ``at`` on that belongs to the value.

        Returns the index after the last scanned character. When ``failed``, the character there is the wrong one.
        """
        length = len(text)
        while at < length and not self.complete and not self.failed:
            run = _RUNS.get(self._state)
            if run is not None:
                at = run.match(text, at).end()  # type: ignore[union-attr]  # it matches the empty string too
                if at == length:
                    break
            following = _MOVES[self._state].get(text[at])
            if following in _MOVES:
                self._state = following
                at += 1
            elif self._done(following, text[at]):
                at += 1
        return at

    def end(self) -> bool:
        """End the text; returns whether the value is complete."""
        if self._state in _NUMBER_ENDS and not self._stack:
            self.complete = True
        return self.complete

    def forgive(self, character: str) -> bool:
        """Continue after an unescaped control character in a string; returns whether ``character`` is one."""
        forgiven = self._state in {"string", "name"} and character < " "
        self.failed = self.failed and not forgiven
        return forgiven

    def _done(self, following: str | None, character: str) -> bool:
        """Do what follows a character, None for a wrong one; returns whether it belongs to the value."""
        if following == "ended":
            self._ended()
        elif following == "next":
            self._state = "key" if self._stack[-1] == "}" else "value"
        elif following == "opens":
            if len(self._stack) >= MAX_DEPTH:
                return self._reject()
            self._stack.append("}" if character == "{" else "]")
            self._state = "first key" if character == "{" else "first value"
        elif following == "closes" and self._stack[-1] == character:
            self._stack.pop()
            self._ended()
        elif following is None and self._state in _NUMBER_ENDS:
            self._ended()
            return False
        else:
            return self._reject()
        return True

    def _reject(self) -> bool:
        self.failed = True
        return False

    def _ended(self) -> None:
        self._state = "after"
        self.complete = not self._stack


def is_json(text: str) -> bool:
    """Tell whether a text is one JSON value and nothing else."""
    scanner = JsonScanner()
    end = scanner.scan(text, 0)
    return not scanner.failed and scanner.end() and end == len(text)
