"""Regular expressions: patterns of schemas in the form of guides, and patterns of string formats."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Annotated, NamedTuple

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
_MOST_PLACES = 8
_MOST_OF_CLASS = 128
_MOST_EXPRESSIONS = 8  # some 0.2 s each at worst
_CLASSES = frozenset({r"\w", r"\W", r"\d", r"\D", r"\s", r"\S"})


def has_assertions(pattern: str) -> bool:
    """Tell whether a regular expression needs more than matching from left to right, which is all that guides do."""
    return _ASSERTION.search(pattern.replace(_ESCAPED_BACKSLASH, "")) is not None


def portable(pattern: str) -> str | None:
    """Rewrite an expression so that the dialects of ECMA, Rust and xgrammar read it alike; None if impossible.

    JSON Schema recommends ECMA's (2020-12, 6.4). Its look-around, back-references, control letters, flags and
    surrogates have no other words.
    """
    if has_assertions(pattern):
        return None
    words: list[str] = []
    opened = -1  # number of words before the class that is being read
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


class PatternMatcher:
    """Matches texts with a few of a client's expressions, in time that is linear in the text."""

    def __init__(self) -> None:
        self._compiled: dict[str, TypeAdapter[str] | None] = {}

    def fits(self, pattern: str, text: str) -> bool | None:
        """Tell whether an expression of ``portable`` matches in a text; None beyond the bound, or where unknown."""
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
    """Tell whether no text fits two expressions, by the characters with which it must begin."""
    (first, first_ends), (second, second_ends) = _beginning(one), _beginning(other)
    if any(a.isdisjoint(b) for a, b in zip(first, second, strict=False)):
        return True
    return (first_ends and len(first) < len(second)) or (second_ends and len(second) < len(first))


def length_range(pattern: str) -> tuple[int, int | None]:
    """The least and the greatest number of characters in a matching text; None for an unknown greatest."""
    characters, ends = _beginning(pattern)
    return len(characters), len(characters) if ends else None


@functools.lru_cache(256)
def _beginning(pattern: str) -> tuple[list[frozenset[str]], bool]:
    """Return the characters that may stand at each of the first places of a text, and whether it has no more places."""
    parts = _PART.findall(pattern)
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
    """Tell whether an expression is one of several at its top, or has a class that leaves this open."""
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
    """Return the characters that a part of an expression stands for, None if not plain, and the place behind it."""
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
    """Return the one character that a part stands for; None where it stands for something else."""
    if len(part) == 2 and part[0] == "\\" and not part[1].isalnum():
        return frozenset(part[1])
    if len(part) != 1 or (part in "\\[]" if in_class else part in ".[](){}*+?|^$\\"):
        return None
    return frozenset(part)


_YEAR = "([1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])"
_LEAP_YEAR = (
    "([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][48]|[2468]0|[13579][26])00)"  # by 4 and not by 100, or by 400
)
_DATE = (
    f"({_YEAR}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))"
    f"|{_LEAP_YEAR}-02-29)"
)
# Without leap seconds: when there was one is not a matter of form (RFC 3339, 5.7).
_TIME = "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?([zZ]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
_DURATION = (
    "P([0-9]+W|([0-9]+Y([0-9]+M([0-9]+D)?)?|[0-9]+M([0-9]+D)?|[0-9]+D)(T{0})?|T{0})"  # RFC 3339, appendix A
).format("([0-9]+H([0-9]+M([0-9]+S)?)?|[0-9]+M([0-9]+S)?|[0-9]+S)")
# Of RFC 1123, but shorter: 8 labels of 30 characters are within the 253 of all.
_LABEL = "[a-zA-Z0-9]([a-zA-Z0-9-]{0,28}[a-zA-Z0-9])?"
_HOSTNAME = f"{_LABEL}(\\.{_LABEL}){{0,7}}"
_ATOM = "[a-zA-Z0-9!#$%'*+/=?_`{|}~-]{1,20}"
_EMAIL = f"{_ATOM}(\\.{_ATOM}){{0,2}}@{_HOSTNAME}"
_OCTET = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4 = f"({_OCTET}\\.){{3}}{_OCTET}"
_H16 = "[0-9a-fA-F]{1,4}"
_IPV6 = "|".join(
    [
        f"({_H16}:){{7}}{_H16}",
        f"({_H16}:){{1,7}}:",
        *(f"({_H16}:){{1,{left}}}(:{_H16}){{1,{7 - left}}}" for left in range(6, 0, -1)),
        f":(:{_H16}){{1,7}}",
        "::",
    ]
)
_UUID = "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_CHARACTER = "([a-zA-Z0-9._~!$&'()*+,;=@-]|%[0-9a-fA-F]{2})"  # of a segment of a path, but for the colon
_REST = f"(\\?({_CHARACTER}|[:/?])*)?(#({_CHARACTER}|[:/?])*)?"
_AUTHORITY = (
    f"//(([a-zA-Z0-9._~!$&'()*+,;=:-]|%[0-9a-fA-F]{{2}})*@)?({_HOSTNAME}|\\[({_IPV6})\\])(:[0-9]{{0,5}})?"
    f"(/({_CHARACTER}|:)*)*"
)
_SEGMENTS = f"({_CHARACTER}|:)+(/({_CHARACTER}|:)*)*"
_URI = f"[a-zA-Z][a-zA-Z0-9+.-]*:({_AUTHORITY}|/({_SEGMENTS})?|{_SEGMENTS}){_REST}"
_REFERENCE = f"({_URI}|({_AUTHORITY}|/({_SEGMENTS})?|{_CHARACTER}+(/({_CHARACTER}|:)*)*)?{_REST})"
_POINTER = "(/([^~/]|~[01])*)*"
_ANY_EMAIL = "[^@\\s]{1,64}@[^@\\s]{1,255}"
_ANY_LABEL = "[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_ANY_HOSTNAME = f"(?=.{{1,253}}$){_ANY_LABEL}(\\.{_ANY_LABEL})*"
_ANY_REFERENCE = "([!#$&-;=?-Z\\[\\]_a-z~]|%[0-9a-fA-F]{2})*"


class StringFormat(NamedTuple):
    """A format of strings.

    Attributes:
        expression: expression of whole strings for guides: never wider than the standard, for some formats narrower.
        least: length of its shortest string.
        most: greatest ``minLength`` that is served; None is any.
        wide: expression for finished answers, as wide as the standard; empty where it is the same one, None where
            they are not checked.
    """

    expression: str
    least: int
    most: int | None
    wide: str | None = ""


_ENDLESS = 40  # llguidance cannot tell whether there are longer ones of those that have no end
_EMAILS = StringFormat(_EMAIL, 3, _ENDLESS, _ANY_EMAIL)
STRING_FORMATS: Mapping[str, StringFormat] = {
    "date": StringFormat(_DATE, 10, 10),
    "time": StringFormat(_TIME, 9, 24),
    "date-time": StringFormat(f"{_DATE}[tT]{_TIME}", 20, 35),
    "duration": StringFormat(_DURATION, 3, _ENDLESS),
    "email": _EMAILS,
    "idn-email": _EMAILS,
    "hostname": StringFormat(_HOSTNAME, 1, _ENDLESS, _ANY_HOSTNAME),
    "idn-hostname": StringFormat(_HOSTNAME, 1, _ENDLESS, None),
    "ipv4": StringFormat(_IPV4, 7, 15),
    "ipv6": StringFormat(f"({_IPV6})", 2, 20),
    "uri": StringFormat(_URI, 3, _ENDLESS, f"[a-zA-Z][a-zA-Z0-9+.-]*:{_ANY_REFERENCE}"),
    "iri": StringFormat(_URI, 3, _ENDLESS, None),
    "uri-reference": StringFormat(_REFERENCE, 0, _ENDLESS, _ANY_REFERENCE),
    "iri-reference": StringFormat(_REFERENCE, 0, _ENDLESS, None),
    "uuid": StringFormat(_UUID, 36, 36),
    "json-pointer": StringFormat(_POINTER, 0, None),
    "relative-json-pointer": StringFormat(f"(0|[1-9][0-9]{{0,8}})(#|{_POINTER})", 1, _ENDLESS),
}
"""Formats by name, with the expressions that are sent in place of ``format``.

Engines' own formats are wider than the standards (both let 31 February pass as a date), and an expression is enforced
exactly. Other names are annotations (2020-12, 7.2.3)."""

INEXPRESSIBLE = frozenset({"regex", "uri-template"})
"""Formats of JSON Schema that no expression here describes."""

CHECKED: Mapping[str, re.Pattern[str]] = {
    name: re.compile(each.wide or each.expression) for name, each in STRING_FORMATS.items() if each.wide is not None
}
"""Formats that finished answers are validated against, as expressions for whole strings."""


def pattern_of(name: str) -> str | None:
    """The pattern of a schema that stands for a format; None without one."""
    return f"^({STRING_FORMATS[name].expression})$" if name in STRING_FORMATS else None
