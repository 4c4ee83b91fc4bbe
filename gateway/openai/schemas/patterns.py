"""Regular expressions of schemas, as guides take them: matching from left to right, no more."""

from __future__ import annotations

import functools
import re
from typing import Annotated

from pydantic import StringConstraints, TypeAdapter
from pydantic_core import SchemaError

_ASSERTION = re.compile(r"\\[1-9bBk]|\(\?(?:[=!]|<[=!])")
_ESCAPED_BACKSLASH = r"\\"
_PART = re.compile(
    r"\\u\{[0-9a-fA-F]{1,6}\}|\\u[0-9a-fA-F]{4}|\\x[0-9a-fA-F]{2}|\\[pP]\{[\w=]+\}|\\."
    r"|\{\d+(?:,\d*)?\}|\((?:\?(?:P?<\w+>|:))?|[\s\S]"
)
_LETTERS = frozenset("adfnrstvwADSW")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_OTHER_WORDS = ((re.compile(r"\\[pP]\{[\w=]+\}|\\u\{\w+\}"), "a"), (re.compile(r"\(\?<"), "(?P<"))  # for Python's
# Rust's expressions, which llguidance has, do sums of classes with these; in ECMA's they are themselves.
_OF_SETS = frozenset("[&~")
_LONGEST = 1000
_MOST_PLACES = 8
_MOST_OF_CLASS = 128
_MOST_EXPRESSIONS = 8  # some 0.2 s each at worst
_CLASSES = frozenset({r"\w", r"\W", r"\d", r"\D", r"\s", r"\S"})


def has_assertions(pattern: str) -> bool:
    """Whether a regular expression needs more than matching from left to right, which is all that guides do."""
    return _ASSERTION.search(pattern.replace(_ESCAPED_BACKSLASH, "")) is not None


def portable(pattern: str) -> str | None:
    """The same expression in words that ECMA's, Rust's and xgrammar's dialects read alike; None where there are none.

    ECMA's is what JSON Schema recommends (2020-12, 6.4). Its look-around, back-references, control letters, flags and
    surrogates have no other words.
    """
    if has_assertions(pattern):
        return None
    words: list[str] = []
    opened = -1  # how many words there were where the class began that we are in
    for part in _PART.findall(pattern):
        if part[0] == "\\":
            word = _escape(part)
            if word is None:
                return None
        elif opened < 0:
            if part == "?" and words and words[-1] == "(":
                return None  # a kind of group that only some dialects have
            word = "\\{" if part == "{" else part
            opened = len(words) if part == "[" else -1
        else:
            word = f"\\{part}" if part in _OF_SETS or (part == "-" and words[-1] in _CLASSES) else part
            if part == "]" and "".join(words[opened + 1 :]) not in ("", "^"):
                opened = -1
        words.append(word)
    return "".join(words) if _is_sound("".join(words)) else None


def _is_sound(expression: str) -> bool:
    for words, plain in _OTHER_WORDS:
        expression = words.sub(plain, expression)
    try:
        re.compile(expression)
    except (re.error, RecursionError, OverflowError):
        return False
    return True


def _escape(part: str) -> str | None:
    if len(part) > 2:
        return None if _SURROGATE.match(part) else part
    letter = part[1:]
    if letter in ("<", ">"):
        return letter
    return None if not letter or (letter.isalnum() and letter not in _LETTERS) else part


class Matcher:
    """Matches texts with a client's expressions, in time that is linear in the text, and so many expressions only."""

    def __init__(self) -> None:
        """Begin with no expression compiled."""
        self._compiled: dict[str, TypeAdapter[str] | None] = {}

    def fits(self, pattern: str, text: str) -> bool | None:
        """Whether an expression, as ``portable`` writes it, is found in a text; None where this is not told."""
        if pattern not in self._compiled:
            if len(self._compiled) >= _MOST_EXPRESSIONS:
                return None
            try:  # by Rust's expressions, which never backtrack
                self._compiled[pattern] = TypeAdapter(Annotated[str, StringConstraints(pattern=pattern)])
            except SchemaError:
                self._compiled[pattern] = None
        compiled = self._compiled[pattern]
        if compiled is None:
            return None
        try:
            compiled.validate_python(text)
        except ValueError:
            return False
        return True


def are_disjoint(one: str, other: str) -> bool:
    """Whether no text fits two expressions, as far as the characters that it must begin with tell."""
    (first, first_ends), (second, second_ends) = _beginning(one), _beginning(other)
    if any(a.isdisjoint(b) for a, b in zip(first, second, strict=False)):
        return True
    return (first_ends and len(first) < len(second)) or (second_ends and len(second) < len(first))


def fewest(pattern: str) -> tuple[int, int | None]:
    """How many characters a text has at least that fits an expression, and at most where that is known."""
    characters, ends = _beginning(pattern)
    return len(characters), len(characters) if ends else None


@functools.lru_cache(256)
def _beginning(pattern: str) -> tuple[list[frozenset[str]], bool]:
    """The characters that may stand at each of the first places of a text, and whether it has no more places."""
    parts = _PART.findall(pattern) if len(pattern) <= _LONGEST else []
    if not parts or parts[0] != "^" or _has_alternatives(parts):
        return [], False
    found: list[frozenset[str]] = []
    place = 1
    while place < len(parts):
        if parts[place] == "$" and place == len(parts) - 1:
            return found, True
        characters, place = _characters(parts, place)
        if characters is None:
            break
        repeated = parts[place] if place < len(parts) else ""
        if repeated in ("*", "?") or re.match(r"\{0*[,}]", repeated):
            break
        found.append(characters)
        if repeated == "+" or re.match(r"\{\d", repeated) or len(found) == _MOST_PLACES:
            break
    return found, False


def _has_alternatives(parts: list[str]) -> bool:
    """Whether an expression is one of several at its top, or has a class of which this is not sure."""
    depth, in_class = 0, False
    for part, following in zip(parts, [*parts[1:], ""], strict=True):
        if in_class:
            in_class = part != "]"
            if part == "^" and following == "]":
                return True
            continue
        in_class = part == "["
        depth += (part[0] == "(") - (part == ")")
        if (in_class and following == "]") or (part == "|" and depth <= 0):
            return True
    return False


def _characters(parts: list[str], place: int) -> tuple[frozenset[str] | None, int]:
    """The characters that one part of an expression stands for, where it is a plain one, and the place behind it."""
    part = parts[place]
    if part != "[":
        return _plain(part), place + 1
    end = place + 1
    while end < len(parts) and parts[end] != "]":
        end += 1
    inside = parts[place + 1 : end]
    if not inside or inside[0] == "^" or "[" in inside or end == len(parts):
        return None, end
    found: set[str] = set()
    while inside:
        first = _plain(inside.pop(0), in_class=True)
        last = _plain(inside[1], in_class=True) if len(inside) > 1 and inside[0] == "-" else first
        if first is None or last is None:
            return None, end
        if last is not first:
            del inside[:2]
        span = range(ord(min(first)), ord(min(last)) + 1)
        if len(span) + len(found) > _MOST_OF_CLASS:
            return None, end
        found.update(map(chr, span))
    return frozenset(found), end + 1


def _plain(part: str, *, in_class: bool = False) -> frozenset[str] | None:
    """The one character that a part stands for; None where it stands for something else."""
    if len(part) == 2 and part[0] == "\\" and not part[1].isalnum():
        return frozenset(part[1])
    if len(part) != 1 or (part in "\\[]" if in_class else part in ".[](){}*+?|^$\\"):
        return None
    return frozenset(part)
