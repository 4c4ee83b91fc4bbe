"""Grammars in XGrammar's EBNF, which is GBNF with a few more escapes, as rules of llguidance's Lark dialect.

Facts of the format: XGrammar's documentation, "EBNF Grammar". Each character becomes a terminal of its own, because
llguidance's lexer takes the longest match: longer terminals lose sentences (``[a-z]+ "b"`` would not match ``ab``).
"""

from __future__ import annotations

import re

_SPACE = re.compile(r"(?:\s|#[^\n]*)+")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_RULE = re.compile(r"([A-Za-z_][A-Za-z0-9_.-]*)\s*::=")
_REPEAT = re.compile(r"[?*+]|\{\s*(\d+)\s*(?:(,)\s*(\d+)?\s*)?\}")
_ESCAPES = {"n": 10, "r": 13, "t": 9, "b": 8, "f": 12, "a": 7, "v": 11, "0": 0, "e": 27}
_CODES = (re.compile(r"x([0-9A-Fa-f]+)"), re.compile(r"u([0-9A-Fa-f]{4})"), re.compile(r"U([0-9A-Fa-f]{8})"))
_LITERAL_ESCAPES = "\"\\/'?"
_CLASS_ESCAPES = _LITERAL_ESCAPES + "^$.*+()[]{}|-"
EMPTY = '""'


class GuideError(ValueError):
    """An answer cannot be held to a guide: it has a mistake, says what is not supported, or is too complex."""


def gbnf_to_lark(grammar: str, prefix: str = "r") -> tuple[str, list[str]]:
    """Convert a grammar.

    Args:
        grammar: rules ``name ::= expression``, one of them named ``root``.
        prefix: begin of the names of the Lark rules, lower case.

    Returns:
        The name of the Lark rule that stands for ``root``, and all Lark rules.

    Raises:
        GuideError: a mistake, with its line; or a construct of XGrammar that is not supported, such as a macro.
    """
    return _Converter(grammar, prefix).convert()


def character(code: int) -> str:
    """A code point as a part of a regular expression."""
    return f"\\x{{{code:x}}}"


def literal(text: str) -> str:
    """A text as a sequence of single characters."""
    return " ".join(f"/{character(ord(letter))}/" for letter in text) or EMPTY


class _Converter:
    def __init__(self, grammar: str, prefix: str) -> None:
        self._text = grammar
        self._prefix = prefix
        self._place = 0
        self._names: dict[str, str] = {}
        self._used: dict[str, int] = {}  # where a rule was first referred to
        self._rule = ""

    def convert(self) -> tuple[str, list[str]]:
        rules: dict[str, str] = {}
        self._skip()
        while self._place < len(self._text):
            head = _RULE.match(self._text, self._place)
            if head is None:
                raise self._error("expected a rule, name ::= expression")
            self._rule = self._name(head[1])
            if self._rule in rules:
                raise self._error(f"rule {head[1]!r} is defined twice")
            self._place = head.end()
            rules[self._rule] = self._body(self._alternatives())
        for name, lark in self._names.items():
            if lark not in rules:
                self._place = self._used[name]
                raise self._error(f"rule {name!r} is not defined")
        if "root" not in self._names:
            raise self._error("rule 'root' is missing")
        return self._names["root"], [f"{name}: {body}" for name, body in rules.items()]

    def _name(self, name: str) -> str:
        self._used.setdefault(name, self._place)
        return self._names.setdefault(name, f"{self._prefix}{len(self._names)}")

    def _body(self, alternatives: list[list[str]]) -> str:
        """``r ::= a r | b`` as ``a* b``: right recursion costs the parser an item per character."""
        own = [items for items in alternatives if items[-1:] == [self._rule]]
        rest = [items for items in alternatives if items[-1:] != [self._rule]]
        loops, ends = [items[:-1] for items in own], rest
        if not own or not rest or not all(loops) or any(self._refers(items) for items in (*loops, *ends)):
            return _join(alternatives)
        return f"( {_join(loops)} )* ( {_join(ends)} )"

    def _refers(self, items: list[str]) -> bool:
        return any(self._rule in item.split() for item in items)

    def _alternatives(self) -> list[list[str]]:
        found = [self._sequence()]
        while self._take("|"):
            found.append(self._sequence())
        return found

    def _sequence(self) -> list[str]:
        items: list[str] = []
        while (item := self._item()) is not None:
            items.append(item)
        return items

    def _item(self) -> str | None:
        """A repeated element, None at the end of the sequence."""
        self._skip()
        head = self._text[self._place : self._place + 1]
        if head == '"':
            element = f"( {literal(self._string())} )"
        elif head == "[":
            element = self._class()
        elif self._take("("):
            element = f"( {_join(self._alternatives())} )"
            if not self._take(")"):
                raise self._error("expected ')'")
        elif _RULE.match(self._text, self._place) or (name := _NAME.match(self._text, self._place)) is None:
            if head and head not in "|)" and not _RULE.match(self._text, self._place):
                raise self._error(f"unexpected {head!r}")
            return None
        else:
            element = self._reference(name)
        return self._repeated(element)

    def _reference(self, name: re.Match[str]) -> str:
        if self._text[name.end() : name.end() + 1] in ("(", "["):
            raise self._error(f"macros and rule options, such as {name[0]!r} here, are not supported")
        lark = self._name(name[0])
        self._place = name.end()
        return lark

    def _repeated(self, element: str) -> str:
        self._skip()
        mark = _REPEAT.match(self._text, self._place)
        if mark is None:
            return element
        self._place = mark.end()
        if mark[1] is None:
            return f"( {element} ){mark[0]}"
        least = int(mark[1])
        most = int(mark[3]) if mark[3] else None if mark[2] else least
        if most is not None and most < least:
            raise self._error("a repetition's upper bound is below its lower bound")
        if most == 0:
            return EMPTY
        return f"( {element} ){{{least},{'' if most is None else most}}}"

    def _string(self) -> str:
        self._place += 1
        letters = []
        while self._text[self._place : self._place + 1] != '"':
            letters.append(chr(self._letter(_LITERAL_ESCAPES)))
        self._place += 1
        return "".join(letters)

    def _class(self) -> str:
        self._place += 1
        negated = self._text[self._place : self._place + 1] == "^"
        self._place += negated
        ranges = []
        while self._text[self._place : self._place + 1] != "]":
            first = last = self._letter(_CLASS_ESCAPES)
            if (
                self._text[self._place : self._place + 1] == "-"
                and self._text[self._place + 1 : self._place + 2] != "]"
            ):
                self._place += 1
                last = self._letter(_CLASS_ESCAPES)
            if last < first:
                raise self._error("a character range ends before it begins")
            ranges.append(f"{character(first)}-{character(last)}")
        self._place += 1
        if not ranges and not negated:
            raise self._error("an empty class of characters matches nothing")
        return f"/[{'^' * negated}{''.join(ranges)}]/" if ranges else "/(?s:.)/"

    def _letter(self, escapable: str) -> int:
        """The next character of a literal or a class, its escape resolved."""
        letter = self._text[self._place : self._place + 1]
        if letter in ("", "\n", "\r"):
            raise self._error("a literal or class does not end on its line")
        self._place += 1
        if letter != "\\":
            return ord(letter)
        for pattern in _CODES:
            if code := pattern.match(self._text, self._place):
                return self._code(code)
        escaped = self._text[self._place : self._place + 1]
        self._place += 1
        if escaped in _ESCAPES:
            return _ESCAPES[escaped]
        if not escaped or escaped not in escapable:
            raise self._error(f"unknown escape \\{escaped}")
        return ord(escaped)

    def _code(self, code: re.Match[str]) -> int:
        value = int(code[1], 16)
        if value > 0x10FFFF or 0xD800 <= value <= 0xDFFF:
            raise self._error(f"{code[0]} is not a character")
        self._place = code.end()
        return value

    def _take(self, mark: str) -> bool:
        self._skip()
        found = self._text.startswith(mark, self._place)
        self._place += len(mark) * found
        return found

    def _skip(self) -> None:
        if space := _SPACE.match(self._text, self._place):
            self._place = space.end()

    def _error(self, problem: str) -> GuideError:
        return GuideError(f"EBNF grammar, line {self._text.count(chr(10), 0, self._place) + 1}: {problem}")


def _join(alternatives: list[list[str]]) -> str:
    return " | ".join(" ".join(items) or EMPTY for items in alternatives)
