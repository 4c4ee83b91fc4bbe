"""Regular expressions of schemas, as guides take them: matching from left to right, no more."""

from __future__ import annotations

import re

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
