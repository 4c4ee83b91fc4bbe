"""What a family's guide lets pass, its parser understands."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.text.families import Content, Event, Family, Reasoning, Tool, ToolPlan
from gateway.text.families.family_table import FAMILIES
from gateway.text.guides.guide import Guide
from tests.families.harness import GUIDES, cut_at, parse, tool
from tests.families.written import (
    BEFORE,
    arguments_of,
    around,
    calls_in,
    calls_text,
    content_in,
    each_formed,
    exact_tool,
    is_harmony,
    is_single,
    native,
    prompts,
    quotes_strings,
    texts_of,
    texts_with,
)
from tests.rings import examples
from tests.tokens.build import FIXED

ARGUMENTS = {"query": 'größer "1" < 2, ]}'}
ANSWER = {"answer": 'größer "1" < 2, ]}'}
SEARCH = tool(
    "search",
    {
        "type": "object",
        "properties": {"query": {"const": ARGUMENTS["query"]}},
        "required": ["query"],
        "additionalProperties": False,
    },
    strict=True,
)
NOW = tool("now", strict=True)
RESPONSE = Guide(
    "json_schema",
    json.dumps({"type": "object", "properties": {"answer": {"const": ANSWER["answer"]}}, "required": ["answer"]}),
)
FAMILY = pytest.mark.parametrize("family", FAMILIES.values(), ids=list(FAMILIES))


def said(family: Family, turn: ToolPlan, prompt: str) -> list[list[Event]]:
    """What the family's parser says of each text that its guide lets pass."""
    preparation = family.prepare(turn, prompt)
    guide = preparation.guide
    assert guide is not None
    form = json.loads(guide.text)
    texts = list(
        texts_of(form["format"] if guide.kind == "structural_tag" else {"type": "json_schema", "json_schema": form})
    )
    assert texts
    return [parse(family.parser(turn, preparation, prompt), text) for text in texts]


@FAMILY
@pytest.mark.parametrize("guides", [GUIDES, GUIDES - {"structural_tag"}], ids=["all guides", "no structural tags"])
@pytest.mark.parametrize("parallel", [True, False], ids=["parallel", "single"])
def test_required_calls(family: Family, guides: frozenset[str], parallel: bool) -> None:
    turn = ToolPlan(tools=(SEARCH, NOW), choice="required", parallel=parallel, guide_types=guides)
    for prompt in prompts(family):
        assert family.prepare(turn, prompt).guided
        found = said(family, turn, prompt)
        assert all(not content_in(events) for events in found)
        calls = [calls_in(events) for events in found]
        assert [each for each in calls if len(each) == 1][:2] == [[("search", ARGUMENTS)], [("now", {})]]
        assert all(each == [("search", ARGUMENTS), ("now", {})] for each in calls if len(each) != 1)
        assert parallel or all(len(each) == 1 for each in calls)


@FAMILY
@pytest.mark.parametrize("guides", [GUIDES, GUIDES - {"structural_tag"}], ids=["all guides", "no structural tags"])
def test_structured_answers(family: Family, guides: frozenset[str]) -> None:
    turn = ToolPlan(response=RESPONSE, guide_types=guides)
    for prompt in prompts(family):
        for events in said(family, turn, prompt):
            assert json.loads(content_in(events)) == ANSWER
            assert all(isinstance(event, Content | Reasoning) for event in events)


@FAMILY
def test_strict_calls_in_auto(family: Family) -> None:
    turn = ToolPlan(tools=(SEARCH, NOW), choice="auto", guide_types=GUIDES)
    for prompt in prompts(family):
        if family.prepare(turn, prompt).guide is None:
            assert not family.prepare(turn, prompt).guided
            continue
        found = said(family, turn, prompt)
        said_calls = [call for events in found for call in calls_in(events)]
        assert {name for name, _ in said_calls} == {"search", "now"}
        assert all(arguments == (ARGUMENTS if name == "search" else {}) for name, arguments in said_calls)
        assert all(calls_in(events) for events in found)
        assert all(not content_in(events).strip() for events in found)


@FAMILY
@pytest.mark.parametrize("guides", [GUIDES, GUIDES - {"structural_tag"}], ids=["all guides", "no structural tags"])
def test_structured_answers_or_calls(family: Family, guides: frozenset[str]) -> None:
    turn = ToolPlan(tools=(SEARCH, NOW), choice="auto", response=RESPONSE, guide_types=guides)
    for prompt in prompts(family):
        kinds = set()
        for events in said(family, turn, prompt):
            calls = calls_in(events)
            assert bool(calls) != bool(content_in(events).strip())
            assert calls or json.loads(content_in(events)) == ANSWER
            kinds.add(bool(calls))
        assert kinds == {True, False}


@st.composite
def answers(draw: st.DrawFn, family: Family) -> tuple[list[tuple[str, Any]], tuple[Tool, ...]]:
    """Calls of any arguments, and the tools that take no others."""
    # A value without quotes ends at its tag, and whitespace at its ends may belong to the format.
    quoted = quotes_strings(family)
    strings = texts_with(*family.markers.texts) if quoted else texts_with().map(str.strip)  # type: ignore[attr-defined]
    drawn = draw(st.lists(arguments_of(strings), min_size=1, max_size=3))
    calls = [(f"f{index}", holdable(family, arguments)) for index, arguments in enumerate(drawn)]
    return calls, tuple(exact_tool(*call) for call in calls)


def holdable(family: Family, arguments: dict[str, Any]) -> dict[str, Any]:
    """Those of the arguments that the family's form can be held to."""

    def holds(some: dict[str, Any]) -> bool:
        return native(family, (exact_tool("f", some),), prompts(family)[-1]) is not None

    return arguments if holds(arguments) else {key: value for key, value in arguments.items() if holds({key: value})}


def said_in(events: list[Event], family: Family) -> None:
    """Nothing of the format is shown, nor the beginning of it at the end."""
    markers = family.markers.texts  # type: ignore[attr-defined]
    begun = {marker[:end] for marker in markers for end in range(2, len(marker) + 1) if not marker[0].isalpha()}
    for event in events:
        if isinstance(event, Content | Reasoning):
            assert not [marker for marker in markers if marker in event.text]
    if events and isinstance(events[-1], Content | Reasoning):
        assert not [beginning for beginning in begun if events[-1].text.endswith(beginning)]


@each_formed
def test_any_calls_are_read_back(family: Family) -> None:
    """In any chunks, behind reasoning and text; and cut anywhere they are never others."""

    @settings(FIXED, max_examples=examples(12))
    @given(answers(family), st.lists(st.integers(0, 10_000), min_size=4, max_size=8), st.booleans())
    def check(drawn: tuple[list[tuple[str, Any]], tuple[Tool, ...]], cuts: list[int], eager: bool) -> None:
        calls, tools = drawn
        written = calls_text(family, tools)
        turn = ToolPlan(tools=tools, choice="auto")
        text, prompt = around(family, written)
        preparation = family.prepare(turn, prompt)

        def read(chunks: Iterable[str], *, cut: bool = False) -> list[Event]:
            return parse(family.parser(turn, preparation, prompt, eager=eager), chunks, cut=cut)

        whole = read([text])
        found = calls_in(whole)
        assert found == calls[: len(found)]
        assert len(found) == (1 if is_single(family) else len(calls))
        assert whole == read(text) == read(cut_at(text, cuts))
        if not is_harmony(family):
            assert content_in(whole).strip() == BEFORE
        for end in {cut % (len(text) + 1) for cut in cuts}:
            begun = read([text[:end]], cut=True)
            said_in(begun, family)
            if not eager:
                assert calls_in(begun) == calls[: len(calls_in(begun))]

    check()
