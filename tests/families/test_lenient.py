"""What models write in place of a family's own form is read, by every family, as far as its notation allows."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from gateway.text.families import Event, Family, ToolPlan
from gateway.text.families.bare_calls import BareCalls
from gateway.text.families.family_table import FAMILIES
from gateway.text.families.gemma_calls import GemmaCalls
from tests.families.harness import cut_at, parse, tool
from tests.families.written import calls_in, calls_text, exact_tool, formed, prompts

TOOLS = (tool("f"), tool("g"))
VALUE = "VALUE"
# Calls of families whose form no guide holds.
OTHERS = {
    "pythonic": '[f(a="VALUE")]',
    "minimax_m3": (
        ']<]minimax[>[<tool_call>]<]minimax[>[<invoke name="f">]<]minimax[>[<a>VALUE]<]minimax[>[</a>'
        "]<]minimax[>[</invoke>]<]minimax[>[</tool_call>"
    ),
}
JSON_VALUES: dict[str, Any] = {
    "7": 7, "-2.5e3": -2.5e3, "0": 0, "true": True, "null": None, '""': "", "[]": [], "{}": {},
    '["x", 1, [false, null]]': ["x", 1, [False, None]],
    '{"k": ["x", {"m": "a, \\"b\\": {c}"}], "n": -1}': {"k": ["x", {"m": 'a, "b": {c}'}], "n": -1},
}  # fmt: skip
PYTHON_VALUES: dict[str, Any] = {
    "'x'": "x", "0x1F": 31, "+5": 5, "1_000": 1000, "None": None, "True": True, "['x', None]": ["x", None],
    "{'k': ['x', {'m': True}]}": {"k": ["x", {"m": True}]},
}  # fmt: skip
WORDS = ("celsius", "San Francisco", "12:30", "007", "https://a.b/c")
STRINGS = ("x", "a b", "größer")


@functools.cache
def example(name: str) -> str:
    """A call in the family's own form, with one argument."""
    return OTHERS.get(name) or calls_text(FAMILIES[name], (exact_tool("f", {"a": VALUE}),))


def string_form(family: Family) -> str:
    """How the family writes a string, with its quotes."""
    grammar = family.grammar  # type: ignore[attr-defined]
    if isinstance(grammar, GemmaCalls):
        return grammar.quote + VALUE + grammar.quote
    return f'"{VALUE}"' if f'"{VALUE}"' in example(family.name) else VALUE


def with_value(family: Family, value: str) -> str:
    """The example with another value in the place of the string; an attribute that tells a string is changed."""
    return example(family.name).replace(string_form(family), value).replace('string="true"', 'string="false"')


def read(family: Family, text: str, *, sound: bool = True) -> list[Event]:
    """What is said of a text: the same in any chunks, and of ``sound`` calls also where they are said as they form."""
    turn = ToolPlan(tools=TOOLS, choice="auto")
    prompt = prompts(family)[-1]
    preparation = family.prepare(turn, prompt)
    events = parse(family.parser(turn, preparation, prompt), [text])
    for size in (1, 5):
        pieces = cut_at(text, range(0, len(text), size))
        assert parse(family.parser(turn, preparation, prompt), pieces) == events, size
    eager = parse(family.parser(turn, preparation, prompt, eager=True), pieces)
    assert not sound or not calls_in(events) or calls_in(eager) == calls_in(events)
    return events


def expected(family: Family, written: str) -> list[tuple[str, Any]]:
    """The calls that a value in the place of a string makes, by the family's notation."""
    grammar = family.grammar  # type: ignore[attr-defined]
    if isinstance(grammar, GemmaCalls):
        values = {**dict(zip(WORDS, WORDS, strict=True)), **PYTHON_VALUES}
    elif isinstance(grammar, BareCalls) and "a=" in example(family.name):
        values = PYTHON_VALUES
    elif string_form(family) == VALUE:
        words = {} if getattr(grammar, "attribute", "") else {"None": None, "True": True}
        values = {**{each: each for each in (*WORDS, *PYTHON_VALUES)}, **words}
    else:
        values = {}
    values = {**values, **JSON_VALUES}
    return [("f", {"a": values[written]})] if written in values else []


EACH = pytest.mark.parametrize("family", [FAMILIES[name] for name in (*formed(), *OTHERS)], ids=[*formed(), *OTHERS])


@EACH
def test_values_of_other_kinds_and_notations(family: Family) -> None:
    for written in (*JSON_VALUES, *PYTHON_VALUES, *WORDS):
        assert calls_in(read(family, with_value(family, written))) == expected(family, written), written


@EACH
def test_whitespace_around_a_value(family: Family) -> None:
    form = string_form(family)
    for value in STRINGS if form != VALUE else ():
        text = example(family.name).replace(form, f" {form} ".replace(VALUE, value))
        assert calls_in(read(family, text)) == [("f", {"a": value})]


@EACH
def test_a_call_with_nothing_where_its_arguments_stand(family: Family) -> None:
    if family.name in OTHERS:
        return
    text = calls_text(family, (exact_tool("f", {}),))
    variants = [text]
    if ', "arguments": {}' in text or ', "parameters": {}' in text:
        variants += [text.replace(', "arguments": {}', "").replace(', "parameters": {}', "")]
        variants += [text.replace(": {}", other) for other in (": null", ': ""')]
    elif "{}" in text:
        others = ("null", '""') if family.name == "apertus" else ("", " ", "\n", '""')
        gemma = isinstance(family.grammar, GemmaCalls)  # type: ignore[attr-defined]
        variants += [text.replace("{}", other) for other in (others[:3] if gemma else others)]
    for variant in variants:
        assert calls_in(read(family, variant)) == [("f", {})], variant


@pytest.mark.parametrize("name", ["gemma4", "functiongemma"])
def test_keys_and_strings_of_gemma_in_quotes_of_any_kind(name: str) -> None:
    family = FAMILIES[name]
    quote = family.grammar.quote  # type: ignore[attr-defined]
    good = example(name)
    for key in ('"a"', "'a'", f"{quote}a{quote}", ' "a" ', "a "):
        assert calls_in(read(family, good.replace("a:", f"{key}:"))) == [("f", {"a": VALUE})], key
    for inside, value in (
        (f"say {quote}hi{quote}", 'say "hi"'),
        (f"say {quote}hi{quote} there", 'say "hi" there'),
        (f"say {quote}hi{quote}, you", 'say "hi", you'),
        (f"{quote}hi{quote} you", '"hi" you'),
    ):
        assert calls_in(read(family, good.replace(VALUE, inside))) == [("f", {"a": value})], inside
        listed = good.replace(f"{quote}{VALUE}{quote}", f"[{quote}{inside}{quote},{{k:{quote}{inside}{quote}}}]")
        assert calls_in(read(family, listed)) == [("f", {"a": [value, {"k": value}]})], inside


@pytest.mark.parametrize("name", ["gemma4", "functiongemma"])
@pytest.mark.parametrize("broken", ["{Q}x", "{Q}x{Q} y", '"x', "'x", "x y:z", "[x", "{{k:{Q}x{Q}"])
def test_a_broken_call_of_gemma_takes_nothing_of_the_next(name: str, broken: str) -> None:
    family = FAMILIES[name]
    quote = family.grammar.quote  # type: ignore[attr-defined]
    good = example(name)
    bad = good.replace(f"{quote}{VALUE}{quote}", broken.replace("{Q}", quote))
    found = calls_in(read(family, bad + good, sound=False))
    assert found in ([("f", {"a": VALUE})], []), (
        "an unclosed string may hide the next call, and never becomes part of one"
    )
