"""What a family's guide lets pass, its parser understands."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gateway.families import CallArguments, CallStart, Content, Event, Family, Reasoning, ToolPlan
from gateway.families.family_table import FAMILIES
from gateway.generation.sampling_params import Guide
from tests.families.harness import GUIDES, parse, tool

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
PROMPTS = {"harmony": "<|start|>user<|message|>Hi<|end|><|start|>assistant"}
FAMILY = pytest.mark.parametrize("family", FAMILIES.values(), ids=list(FAMILIES))


def texts_of(form: dict[str, Any]) -> Iterator[str]:
    """A text for every way through a structural tag, with one call where there may be several."""
    kind = form["type"]
    if kind in _SIMPLE:
        yield _SIMPLE[kind](form)
    elif kind == "json_schema":
        yield from (json.dumps(value, ensure_ascii=False) for value in values_of(form["json_schema"]))
    elif kind == "tag":
        yield from (form["begin"] + text + form["end"] for text in texts_of(form["content"]))
    elif kind == "sequence":
        yield from map("".join, itertools.product(*(list(texts_of(element)) for element in form["elements"])))
    elif kind == "or":
        yield from (text for element in form["elements"] for text in texts_of(element))
    else:
        assert kind == "triggered_tags"
        assert all(element["begin"].startswith(tuple(form["triggers"])) for element in form["tags"])
        yield from (text for element in form["tags"] for text in texts_of(element))


_SIMPLE: dict[str, Callable[[dict[str, Any]], str]] = {
    "const_string": lambda form: str(form["value"]),
    "any_text": lambda _: "Hm, 1 < 2.",
    "regex": lambda form: {"[0-9]{1,4}": "7"}[form["pattern"]],
}


def values_of(schema: dict[str, Any]) -> Iterator[Any]:
    """A value for every alternative of the small schemas here."""
    if "const" in schema:
        yield schema["const"]
    elif "anyOf" in schema:
        for part in schema["anyOf"]:
            yield from values_of(part)
    elif schema["type"] == "array":
        for value in values_of(schema["items"]):
            yield [value]
    else:
        names = schema.get("required", [])
        parts = [list(values_of(schema["properties"][name])) for name in names]
        for values in itertools.product(*parts):
            yield dict(zip(names, values, strict=True))


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


def calls_in(events: list[Event]) -> list[tuple[str, Any]]:
    """Names and arguments of the calls."""
    starts = [event for event in events if isinstance(event, CallStart)]
    arguments = {start.index: "" for start in starts}
    for event in events:
        if isinstance(event, CallArguments):
            arguments[event.index] += event.text
    return [(start.name, json.loads(arguments[start.index])) for start in starts]


def content_in(events: list[Event]) -> str:
    """The content."""
    return "".join(event.text for event in events if isinstance(event, Content))


def prompts(family: Family) -> list[str]:
    """Ends of prompts: with nothing open and, for families with think tags, inside and behind the reasoning."""
    tags = getattr(family, "tags", None)
    return [PROMPTS.get(family.name, ""), *([f"{tags.open}\n", f"{tags.open}{tags.close}"] if tags else [])]


@FAMILY
@pytest.mark.parametrize("guides", [GUIDES, GUIDES - {"structural_tag"}], ids=["all guides", "no structural tags"])
@pytest.mark.parametrize("parallel", [True, False], ids=["parallel", "single"])
def test_required_calls(family: Family, guides: frozenset[str], parallel: bool) -> None:
    turn = ToolPlan(tools=(SEARCH, NOW), choice="required", parallel=parallel, guide_types=guides)
    for prompt in prompts(family):
        assert family.prepare(turn, prompt).guided
        found = said(family, turn, prompt)
        assert [call for events in found for call in calls_in(events)][:2] == [("search", ARGUMENTS), ("now", {})]
        assert all(len(calls_in(events)) == 1 and not content_in(events) for events in found)


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
        assert {json.dumps(calls_in(events)) for events in found} == {
            json.dumps([("search", ARGUMENTS)]),
            json.dumps([("now", {})]),
        }
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
