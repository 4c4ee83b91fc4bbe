"""What a family's guide lets pass, its parser understands."""

from __future__ import annotations

import json

import pytest

from gateway.families import Content, Event, Family, Reasoning, ToolPlan
from gateway.families.family_table import FAMILIES
from gateway.generation.sampling_params import Guide
from tests.families.harness import GUIDES, parse, tool
from tests.families.written import calls_in, content_in, prompts, texts_of

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
