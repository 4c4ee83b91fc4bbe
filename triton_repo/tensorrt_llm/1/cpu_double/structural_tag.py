"""Structural tags, as XGrammar defines them, as a grammar of llguidance's Lark dialect.

Facts of the format: XGrammar's documentation, "Structural Tag Usage". Two forms are taken: the older
``{"structures": [{"begin", "schema", "end"}], "triggers": [...]}``, and ``{"type": "structural_tag", "format": {...}}``
with the formats const_string, json_schema, regex, grammar, any_text, sequence, or, optional, plus, star, tag,
triggered_tags and tags_with_separator.

Text of a literal that is a special token stands for that token; free text holds no special tokens.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from cpu_double.gbnf import EMPTY, GuideError, gbnf_to_lark, literal

_ANY = r"/(?s:.*)/"
_UNLIMITED = ("any_text", "triggered_tags")

Format = Mapping[str, Any]


def structural_tag_to_lark(
    guide: Any,
    special: Mapping[str, int],
    to_regex: Callable[[str], str],
    json_options: Mapping[str, Any],
) -> str:
    """Convert a structural tag.

    Args:
        guide: the parsed JSON.
        special: ids of special tokens by their texts.
        to_regex: makes a regular expression of a guide one of Lark, without slashes.
        json_options: llguidance's ``x-guidance`` for JSON within.

    Raises:
        GuideError: a mistake, or a format that is not known here.
    """
    if not isinstance(guide, Mapping):
        raise GuideError("a structural tag is a JSON object")
    return _Compiler(special, to_regex, json_options).grammar(_format_of(guide))


def _format_of(guide: Format) -> Format:
    if "format" in guide:
        return _mapping(guide, "format")
    tags = [
        {"begin": _text(item, "begin"), "content": _schema(item.get("schema", {})), "end": _text(item, "end")}
        for item in map(_checked, _list(guide, "structures"))
    ]
    return {"type": "triggered_tags", "triggers": _list(guide, "triggers"), "tags": tags}


def _schema(schema: Any) -> Format:
    if isinstance(schema, str):
        try:
            schema = json.loads(schema)
        except ValueError:
            raise GuideError("the schema of a structural tag is not JSON") from None
    return {"type": "json_schema", "json_schema": schema}


class _Compiler:
    """Makes expressions; rules that they need are collected. ``end`` is what an expression must end with, and include.

    A content that may be anything (any_text, triggered_tags) reaches to the first text of its end.
    """

    def __init__(
        self, special: Mapping[str, int], to_regex: Callable[[str], str], json_options: Mapping[str, Any]
    ) -> None:
        self._special, self._to_regex, self._json_options = special, to_regex, dict(json_options)
        self._rules: list[str] = []
        self._numbers = itertools.count()
        pattern = "|".join(re.escape(text) for text in sorted(special, key=len, reverse=True))
        self._split = re.compile(f"({pattern})") if pattern else None

    def grammar(self, root: Format) -> str:
        start = self._expression(root, None)
        return "\n".join([f"start: {start}", *self._rules])

    def _expression(self, what: Format, end: list[str] | None) -> str:
        kind = what.get("type")
        if kind in _UNLIMITED:
            return self._any_text(what, end) if kind == "any_text" else self._triggered(what, end)
        if kind == "sequence":
            return self._sequence(_list(what, "elements"), end)
        if kind == "regex":
            return self._regex(what, end)
        make = {
            "const_string": lambda: self._literal(_text(what, "value")),
            "json_schema": lambda: self._json(what),
            "grammar": lambda: self._gbnf(what),
            "or": lambda: f"( {_either(self._expression(_checked(each), None) for each in _list(what, 'elements'))} )",
            "optional": lambda: f"( {self._expression(_mapping(what, 'content'), None)} )?",
            "plus": lambda: f"( {self._expression(_mapping(what, 'content'), None)} )+",
            "star": lambda: f"( {self._expression(_mapping(what, 'content'), None)} )*",
            "tag": lambda: self._tag(what),
            "tags_with_separator": lambda: self._separated(what),
        }.get(str(kind))
        if make is None:
            raise GuideError(f"structural tags of the format {str(kind)[:40]!r} are not supported")
        return self._ended(make(), end)

    def _ended(self, expression: str, end: list[str] | None) -> str:
        if not end:
            return expression
        return f"{expression} ( {_either(self._literal(text) for text in end)} )"

    def _literal(self, text: str) -> str:
        if self._split is None:
            return literal(text)
        parts = [part for part in self._split.split(text) if part]
        return " ".join(f"<[{self._special[p]}]>" if p in self._special else literal(p) for p in parts) or EMPTY

    def _json(self, what: Format) -> str:
        if what.get("style", "json") != "json" or what.get("any_order"):
            raise GuideError("json_schema within structural tags has the style json and a fixed order only")
        schema = what.get("json_schema", {})
        if schema is True:
            schema = {}
        if not isinstance(schema, Mapping):
            raise GuideError("json_schema is an object")
        guided = {**schema, "x-guidance": self._json_options}
        return self._rule("%json " + json.dumps(guided, ensure_ascii=False))

    def _gbnf(self, what: Format) -> str:
        root, rules = gbnf_to_lark(_text(what, "grammar"), f"g{next(self._numbers)}_")
        self._rules += rules
        return root

    def _regex(self, what: Format, end: list[str] | None) -> str:
        """One terminal with its end: the lexer would else take the end for a part of a longer match."""
        pattern = f"/{self._to_regex(_text(what, 'pattern'))}/"
        ends = [text for text in end or () if text]
        if any(self._begins_special(text) for text in ends):
            return self._ended(self._terminal(pattern), end)
        return self._terminal(f"{pattern} ( {_quoted(ends)} )" if ends else pattern)

    def _any_text(self, what: Format, end: list[str] | None) -> str:
        for name in ("max_tokens", "max_chars"):
            if what.get(name) is not None:
                raise GuideError(f"any_text with {name} is not supported")
        return self._free(_strings(what, "excludes"), end)

    def _free(self, excludes: list[str], end: list[str] | None) -> str:
        """Text without ``excludes`` up to the first of ``end``."""
        free = " & ".join([_ANY, *(f"~( {_ANY} {_quote(text)} {_ANY} )" for text in excludes)])
        text = self._terminal(free)
        ends = [each for each in end or () if each]
        if not ends:
            return text
        found = []
        plain = [each for each in ends if not self._begins_special(each)]
        if plain:
            found.append(self._rule(f"{text} ( {_quoted(plain)} )", lazy=True))
        found += [f"{text} {self._literal(each)}" for each in ends if each not in plain]
        return f"( {_either(found)} )"

    def _sequence(self, elements: list[Any], end: list[str] | None) -> str:
        parts: list[str] = []
        rest = [_checked(element) for element in elements]
        while rest:
            element = rest.pop(0)
            if element.get("type") in _UNLIMITED and rest:
                begin, following = _split_begin(rest.pop(0))
                parts.append(self._expression(element, [begin]))
                rest[:0] = following
            else:
                parts.append(self._expression(element, None if rest else end))
        return " ".join(parts) or self._ended(EMPTY, end)

    def _tag(self, what: Format, begun: int = 0) -> str:
        """``begun`` characters of the begin are there already."""
        ends = what.get("end", "")
        ends = ends if isinstance(ends, list) else [ends]
        if not all(isinstance(each, str) for each in (what.get("begin", ""), *ends)):
            raise GuideError("begin and end of a structural tag are texts")
        begin = self._literal(_text(what, "begin")[begun:])
        # An empty end ends nothing: the content must end by itself.
        return f"( {begin} {self._expression(_mapping(what, 'content'), ends if any(ends) else None)} )"

    def _triggered(self, what: Format, end: list[str] | None) -> str:
        triggers = _strings(what, "triggers")
        excludes = _strings(what, "excludes")
        calls = []
        by_trigger: dict[str, list[str]] = {}
        for tag in map(_checked, _list(what, "tags")):
            begin = _text(tag, "begin")
            matching = [trigger for trigger in triggers if trigger and begin.startswith(trigger)]
            if len(matching) != 1:
                raise GuideError("each tag of triggered_tags begins with exactly one of the triggers")
            by_trigger.setdefault(matching[0], []).append(self._tag(tag, len(matching[0])))
        for trigger, tags in by_trigger.items():
            calls.append(f"{self._free(excludes, [trigger])} ( {_either(tags)} )")
        forced = [f"( {self._literal(trigger)} ( {_either(tags)} ) )" for trigger, tags in by_trigger.items()]
        tail = self._free(excludes, end)
        return _loop(calls, forced, tail, what, self._ended("", end))

    def _separated(self, what: Format) -> str:
        tags = _either(self._tag(_checked(tag)) for tag in _list(what, "tags"))
        more = "" if what.get("stop_after_first") else f" ( {self._literal(_text(what, 'separator'))} ( {tags} ) )*"
        return f"( ( {tags} ){more} ){'' if what.get('at_least_one') else '?'}"

    def _begins_special(self, text: str) -> bool:
        if self._split is None or not self._split.search(text):
            return False
        if not self._split.match(text):
            raise GuideError("a text that ends free text has no special token but at its begin")
        return True

    def _terminal(self, pattern: str) -> str:
        name = f"T{next(self._numbers)}"
        self._rules.append(f"{name}: {pattern}")
        return name

    def _rule(self, expression: str, *, lazy: bool = False) -> str:
        name = f"x{next(self._numbers)}"
        self._rules.append(f"{name}{'[lazy]' if lazy else ''}: {expression}")
        return name


def _loop(calls: list[str], forced: list[str], tail: str, what: Format, close: str) -> str:
    """Free text and calls in turn, as the two switches of triggered_tags say."""
    once, least = bool(what.get("stop_after_first")), bool(what.get("at_least_one"))
    if not calls:
        return tail
    first = f"( {_either(forced)} )" if least else f"( {_either(calls)} )"
    if once:
        return f"{first} {close}" if least else f"( {first} {close} | {tail} )"
    return f"{first} ( {_either(calls)} )* {tail}" if least else f"{first}* {tail}"


def _split_begin(following: Format) -> tuple[str, list[Format]]:
    """The literal that a format begins with, and what of it follows that."""
    if following.get("type") == "const_string" and _text(following, "value"):
        return following["value"], []
    if following.get("type") == "tag" and isinstance(following.get("begin"), str) and following["begin"]:
        return following["begin"], [{**following, "begin": ""}]
    raise GuideError("in a sequence, any_text and triggered_tags are last or before a const_string or tag")


def _either(expressions: Iterable[str]) -> str:
    return " | ".join(expressions) or EMPTY


def _quoted(texts: list[str]) -> str:
    return " | ".join(_quote(text) for text in texts)


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _checked(value: Any) -> Format:
    if not isinstance(value, Mapping):
        raise GuideError("a format of a structural tag is a JSON object")
    return value


def _mapping(what: Format, name: str) -> Format:
    return _checked(what.get(name))


def _list(what: Format, name: str) -> list[Any]:
    value = what.get(name)
    if not isinstance(value, list):
        raise GuideError(f"a structural tag lacks the list {name!r}")
    return value


def _strings(what: Format, name: str) -> list[str]:
    value = what.get(name) or []
    if not isinstance(value, list) or not all(isinstance(each, str) and each for each in value):
        raise GuideError(f"{name!r} of a structural tag is a list of texts")
    return value


def _text(what: Format, name: str) -> str:
    value = what.get(name)
    if not isinstance(value, str):
        raise GuideError(f"a structural tag lacks the text {name!r}")
    return value
