"""Calls that are not as they should be: the tables of docs/reference/families.md, family by family."""

from __future__ import annotations

import pytest

from gateway.text.families import CallArguments, Content, Event, Family, Reasoning, ToolPlan
from gateway.text.families.family_table import FAMILIES
from tests.families.harness import cut_at, parse, tool
from tests.families.written import (
    around,
    call_texts,
    calls_in,
    calls_text,
    content_in,
    each_formed,
    exact_tool,
    prompts,
    quotes_strings,
    reasoning_in,
)

TOOLS = (
    tool("f", {"type": "object", "properties": {"a": {"type": "string"}, "n": {"type": "integer"}}}),
    tool("g"),
)
GOOD = '{"name": "f", "arguments": {"a": "x"}}'
# What stands before a JSON call, and between two of them, and behind the last.
LISTED = {
    "hermes": ("<tool_call>\n", "\n", "\n</tool_call>"),
    "qwen3": ("<tool_call>\n", "\n", "\n</tool_call>"),
    "granite4": ("<tool_call>[", ", ", "]</tool_call>"),
    "granite": ("<|tool_call|>[", ", ", "]"),
    "mistral": ("[TOOL_CALLS][", ", ", "]"),
    "phi4": ("<|tool_call|>[", ", ", "]<|/tool_call|>"),
    "granite_20b": ("<function_call> ", "\n", ""),
    "hunyuan": ("<tool_calls>[", ", ", "]</tool_calls>"),
    "minimax_m1": ("<tool_calls>\n", "\n", "\n</tool_calls>"),
    "jamba": ("<tool_calls>[\n", ",\n", "\n]</tool_calls>"),
    "apriel": ("<tool_calls>[", ", ", "]</tool_calls>"),
    "nemotron": ("<TOOLCALL>[", ", ", "]</TOOLCALL>"),
    "internlm": ("<|action_start|><|plugin|>\n", "\n", "<|action_end|>"),
    "intern_s1": ("<|action_start|> <|plugin|>\n", "\n", "<|action_end|>"),
    "longcat": ("<longcat_tool_call>\n", "\n", "\n</longcat_tool_call>"),
    "ernie": ("<tool_call>\n", "\n", "\n</tool_call>"),
    "llama3_json": ("<|python_tag|>", "; ", "<|eom_id|>"),
}
# What stands before and behind a call's JSON arguments, with its name.
ARGUED = {
    "mistral_v11": ("[TOOL_CALLS]%s[ARGS]", ""),
    "deepseek_v3": (
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>%s\n```json\n",  # noqa: RUF001
        "\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",  # noqa: RUF001
    ),
    "deepseek_v31": ("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>%s<｜tool▁sep｜>", "<｜tool▁call▁end｜>"),  # noqa: RUF001
    "kimi": (
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.%s:0<|tool_call_argument_begin|>",
        "<|tool_call_end|><|tool_calls_section_end|>",
    ),
    "kimi_k3": (
        '<|open|>tools<|sep|><|open|>call tool="%s" index="1"<|sep|><|open|>json type="object"<|sep|>',
        "<|close|>json<|sep|><|close|>call<|sep|><|close|>tools<|sep|>",
    ),
    "functionary_v31": ("<function=%s>", "</function>"),
    "harmony": ("<|channel|>commentary to=functions.%s <|constrain|>json<|message|>", "<|call|>"),
}


def calls(family: str, text: str) -> list[tuple[str, str]]:
    """Names and arguments of the calls that a family reads in a text that ended by itself."""
    turn = ToolPlan(tools=TOOLS, choice="auto")
    prompt = "<|start|>assistant" if family == "harmony" else ""
    chosen = FAMILIES[family]
    return call_texts(parse(chosen.parser(turn, chosen.prepare(turn, prompt), prompt), [text]))


F = ("f", '{"a": "x"}')


@pytest.mark.parametrize("family", LISTED)
def test_json_calls(family: str) -> None:
    before, between, after = LISTED[family]
    assert calls(family, before + GOOD + after) == [F]
    assert calls(family, before + GOOD) == [F]
    assert calls(family, before + GOOD[:-1]) == []
    assert calls(family, before + GOOD.replace('"', "'") + after) == []
    assert calls(family, before + GOOD.replace('"x"', "NaN") + after) == []
    assert calls(family, before + GOOD.replace('"f"', '"h"') + after) == []
    assert calls(family, before + '{"arguments": {}}' + after) == []
    assert calls(family, before + '{"name": "f", "name": "g", "arguments": {}}' + after) == []
    assert calls(family, before + '{"name": "f", "arguments": {}, "arguments": {}}' + after) == []
    assert calls(family, before + '{"name": "f", "arguments": {"n": 1, "n": 2}}' + after) == [("f", '{"n": 1, "n": 2}')]
    assert calls(family, before + r'{"name": "f", "arguments": "{\"a\": \"x\"}"}' + after) == [F]
    assert calls(family, before + '{"name": "f", "arguments": [1]}' + after) == []
    broken = '{"name": "h", "arguments": {}}'
    several = calls(family, before + between.join([GOOD, broken, GOOD]) + after)
    assert several == ([] if family == "llama3_json" else [F])


@pytest.mark.parametrize("family", ARGUED)
def test_json_arguments(family: str) -> None:
    head, after = ARGUED[family]
    before = head % "f"
    assert calls(family, before + F[1] + after) == [F]
    assert calls(family, before + F[1]) == [F]
    assert calls(family, before + F[1][:-1]) == []
    assert calls(family, before + "{'a': 'x'}" + after) == []
    assert calls(family, head % "h" + F[1] + after) == []
    assert calls(family, before + '{"n": 1, "n": 2}' + after) == [("f", '{"n": 1, "n": 2}')]
    assert calls(family, before + r'"{\"a\": \"x\"}"' + after) == [F]
    assert calls(family, before + "[1]" + after) == []


OPEN = {"qwen3_coder": "<tool_call>\n<function=f>\n", "glm": "<tool_call>f\n"}
CLOSE = {"qwen3_coder": "</function>\n</tool_call>", "glm": "</tool_call>"}


def argument(family: str, name: str, value: str) -> str:
    if family == "glm":
        return f"<arg_key>{name}</arg_key>\n<arg_value>{value}</arg_value>\n"
    return f"<parameter={name}>\n{value}\n</parameter>\n"


@pytest.mark.parametrize("family", OPEN)
def test_bare_values(family: str) -> None:
    head, end = OPEN[family], CLOSE[family]
    a, n = argument(family, "a", "x"), argument(family, "n", "3")
    assert calls(family, head + a + n + end) == [("f", '{"a": "x", "n": 3}')]
    assert calls(family, head + a) == []
    unclosed = a.replace("</parameter>\n", "").replace("</arg_value>", "")
    assert calls(family, head + unclosed + end) == []
    assert calls(family, head + unclosed + n + end) == []
    assert calls(family, head + unclosed + end + head + a + end) == []
    assert calls(family, head + a + a + end) == []
    assert calls(family, head + argument(family, "", "x") + end) == []
    assert calls(family, head + argument(family, "b", "x") + end) == [("f", '{"b": "x"}')]
    assert calls(family, head + argument(family, "b: 1", "x") + end) == []
    assert calls(family, head + argument(family, "n", "many") + end) == [("f", '{"n": "many"}')]
    assert calls(family, head.replace("f", "h") + a + end + head + a + end) == [F]


@pytest.mark.parametrize(
    ("family", "before", "after"),
    [
        ("pythonic", "<|python_start|>", "<|python_end|>"),
        ("lfm2", "<|tool_call_start|>", "<|tool_call_end|>"),
        ("olmo3", "<function_calls>", "</function_calls>"),
    ],
)
def test_python_calls(family: str, before: str, after: str) -> None:
    assert calls(family, f"{before}[f(a='x')]{after}") == [F]
    assert calls(family, f"{before}[f(a='x')]") == [F]
    assert calls(family, f"{before}[f(a='x'){after}") == []
    assert calls(family, f"{before}[f(a='x'{after}") == []
    assert calls(family, f"{before}[f(a='x){after}") == []
    assert calls(family, f"{before}[f(a='x', a='y')]{after}") == []
    assert calls(family, f"{before}[f(='x')]{after}") == []
    assert calls(family, f"{before}[f('x')]{after}") == []
    assert calls(family, f"{before}[f(b='x')]{after}") == [("f", '{"b": "x"}')]
    assert calls(family, f"{before}[f(n='many')]{after}") == [("f", '{"n": "many"}')]
    assert calls(family, f"{before}[f(a='x'), h(), f(a='x')]{after}") == []


KNOWN = (exact_tool("f", {"a": "x"}), exact_tool("g", {"a": "y"}))
each_family = pytest.mark.parametrize("family", FAMILIES.values(), ids=list(FAMILIES))


def read(family: Family, text: str, prompt: str) -> list[Event]:
    """What is said of a text of any kind: the same whole and in chunks, and nothing of the family's format."""
    turn = ToolPlan(tools=TOOLS, choice="auto")
    preparation = family.prepare(turn, prompt)
    events = parse(family.parser(turn, preparation, prompt), [text])
    assert parse(family.parser(turn, preparation, prompt), cut_at(text, range(0, len(text), 3))) == events
    for event in events:
        if isinstance(event, Content | Reasoning):
            assert not [marker for marker in family.markers.texts if marker in event.text]  # type: ignore[attr-defined]
    return events


@each_family
def test_markers_in_ordinary_text_are_no_calls(family: Family) -> None:
    for prompt in prompts(family)[-1:]:
        for marker in sorted(family.prepare(ToolPlan(tools=TOOLS, choice="auto"), prompt).special):
            for text in (f"Say {marker} now.", f"{marker}{marker} so", f"a {marker}\n\n{marker}"):
                assert not calls_in(read(family, text, prompt))


@each_family
def test_reasoning_that_never_closes_is_reasoning(family: Family) -> None:
    tags = getattr(family, "tags", None)
    for prompt in prompts(family)[1:2]:
        events = read(family, "Hm. And so on, 1 < 2,\n" * 20, prompt)
        assert reasoning_in(events) == ("Hm. And so on, 1 < 2,\n" * 20).rstrip()
        assert not content_in(events)
        assert tags


@each_formed
def test_a_call_inside_reasoning_is_a_call_or_reasoning(family: Family) -> None:
    tags = getattr(family, "tags", None)
    if tags is None:
        return
    written = calls_text(family, KNOWN[:1])
    for closed in (f"{tags.close}{tags.between}So.", ""):
        events = read(family, f"I might say\n{written}\nor not.{closed}", prompts(family)[1])
        assert calls_in(events) in ([], [("f", {"a": "x"})])
        assert reasoning_in(events).startswith("I might say")
        assert content_in(events).endswith("So.") or not closed


@each_formed
def test_a_name_that_was_not_given_is_no_call(family: Family) -> None:
    for name in ("rm", "fg"):
        text, prompt = around(family, calls_text(family, (exact_tool(name, {"a": "x"}),)))
        assert not calls_in(read(family, text, prompt))


@each_formed
def test_a_broken_call_is_no_other_call(family: Family) -> None:
    """One character is left out, doubled or another: the call is the same, another value of text, or none."""
    written = calls_text(family, KNOWN[:1])
    text, prompt = around(family, written)
    for at in range(len(text) - len(written), len(text)):
        for other in ("", 2 * text[at], "\x00"):
            for name, arguments in calls_in(read(family, text[:at] + other + text[at + 1 :], prompt)):
                assert name in {"f", "g"}
                assert isinstance(arguments, dict)


@each_formed
def test_arguments_that_are_no_json_are_no_call(family: Family) -> None:
    if not quotes_strings(family):
        return
    text, prompt = around(family, calls_text(family, KNOWN[:1]))
    for bad in ('"x', "x", "NaN", '"x" "y"', '"\\x"', '"x\\', "{", "[" * 200 + "]" * 200):
        assert not calls_in(read(family, text.replace('"x"', bad), prompt)), bad


@pytest.mark.parametrize(
    ("family", "before", "quote", "after"),
    [
        ("gemma4", "<|tool_call>", '<|"|>', "<tool_call|>"),
        ("functiongemma", "<start_function_call>", "<escape>", "<end_function_call>"),
    ],
)
def test_gemma_calls(family: str, before: str, quote: str, after: str) -> None:
    good = f"{before}call:f{{a:{quote}x{quote}}}{after}"
    assert calls(family, good) == [F]
    assert calls(family, good.removesuffix(after)) == [F]
    assert calls(family, good.removesuffix("}" + after)) == []
    assert calls(family, good.replace("}", "")) == []
    assert calls(family, good.replace(f"x{quote}", "x")) == []
    assert calls(family, good.replace(f"{quote}x{quote}", "x")) == [F]
    assert calls(family, good.replace("call:", "")) == []
    assert calls(family, good.replace("a:", "")) == []
    assert calls(family, good.replace("a:", ":")) == []
    assert calls(family, good.replace("a:", f"a:{quote}y{quote},a:")) == []
    assert calls(family, good.replace("a:", "b:")) == [("f", '{"b": "x"}')]
    assert calls(family, good.replace(f"a:{quote}x", f"n:{quote}many")) == [("f", '{"n": "many"}')]
    assert calls(family, good + good.replace("f{", "h{") + good) == [F, F]


@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize("inside", ['a:<|"|>x<|"|>}', 'a:<|"|>x<|"|>,n:1 '])
def test_the_end_of_a_call_of_gemma_without_its_first_character_is_not_shown(inside: str, eager: bool) -> None:
    family, turn = FAMILIES["gemma4"], ToolPlan(tools=TOOLS, choice="auto")
    parser = family.parser(turn, family.prepare(turn, ""), "", eager=eager)
    said = content_in(parse(parser, f"<|tool_call>call:f{{{inside}tool_call|> Done.", cut=False))
    assert said.endswith(" Done.")
    assert "tool_call" not in said


@pytest.mark.parametrize("family", ["lfm2", "olmo3"])
def test_of_a_broken_dictionary_nothing_behind_its_key_is_lost(family: str) -> None:
    turn = ToolPlan(tools=TOOLS, choice="auto")
    parser = FAMILIES[family].parser(turn, FAMILIES[family].prepare(turn, ""), "", eager=True)
    opening = FAMILIES[family].grammar.opens[0]  # type: ignore[attr-defined]
    events = parse(parser, f"{opening}f(a={{1: 2}}) Done.", cut=False)
    assert content_in(events) == ": 2}) Done."


def test_a_key_of_minimax_m3_may_be_empty_as_in_json() -> None:
    word = "]<]minimax[>["
    inside = f"{word}<a>x{word}</a>{word}<>y{word}</>"
    text = f'{word}<tool_call>{word}<invoke name="f">{inside}{word}</invoke>{word}</tool_call>'
    assert calls("minimax_m3", text) == [("f", '{"a": "x", "": "y"}')]


@pytest.mark.parametrize("behind", ["<|close|>call oops<|sep|>", '<|open|>json type="object"<|s', "<|open|>argu"])
def test_a_call_of_kimi_k3_that_breaks_before_its_arguments_has_none_that_look_empty(behind: str) -> None:
    """A client that takes an empty text for no arguments would run the tool."""
    family, turn = FAMILIES["kimi_k3"], ToolPlan(tools=TOOLS, choice="auto")
    parser = family.parser(turn, family.prepare(turn, ""), "", eager=True)
    events = parse(parser, '<|open|>call tool="g" index="1"<|sep|>' + behind, cut=True)
    assert "".join(event.text for event in events if isinstance(event, CallArguments)) == "{"
