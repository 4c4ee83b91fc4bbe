"""Guides of families, checked by the guided decoding of the reference engine."""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from gateway.text.families import Family, Preparation, ToolPlan
from gateway.text.families.family_table import FAMILIES
from gateway.text.families.model_family import ModelFamily
from gateway.text.guides.guide import Guide
from tests.chat_templates.conversation import MESSAGES, TOOLS, template
from tests.families.harness import GUIDES, parse, tool
from tests.families.written import prompts
from tests.tokens.build import byte_level

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "triton_repo" / "tensorrt_llm" / "1"))

from cpu_double.guided import GuidedDecoder, Matcher

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
TREE = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$id": "https://example.com/tree",
    "type": "object",
    "properties": {
        "root": {"$ref": "#/$defs/Node"},
        "const": {"const": {"$ref": "#/x"}},
        "$ref": {"type": "integer"},
        "same": {"$ref": "#/properties/root"},
    },
    "required": ["root"],
    "additionalProperties": False,
    "$defs": {
        "Node": {
            "type": "object",
            "properties": {
                "children": {"type": "array", "items": {"$ref": "#/$defs/Node"}},
                "name": {"enum": ["a", "b"]},
            },
            "required": ["name"],
            "additionalProperties": False,
        }
    },
}
WEATHER = tool("get_weather", CITY)
TREES = tool("plant", TREE)
NOW = tool("now")
STRICT = tool("get_weather", CITY, strict=True)
ANSWER = Guide(
    "json_schema", json.dumps({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})
)


@functools.cache
def decoder() -> GuidedDecoder:
    tokenizer = byte_level()
    ends = [tokenizer.token_id("<|im_end|>")]
    return GuidedDecoder(tokenizer.backend.to_str(), 600, [end for end in ends if end is not None])


def matcher(guide: Guide) -> Matcher:
    compiled = decoder().compile(guide).result()  # type: ignore[arg-type]  # the engine's own class has the same fields
    ends = decoder()._ends
    return Matcher(compiled.deep_copy(), 600, ends, ends)


def keeps_to(guide: Guide, text: str) -> bool:
    """Whether the guide lets the text pass as a whole answer."""
    state = matcher(guide)._matcher  # its masks, of all tokens at each place, would take most of these tests' time
    ids = byte_level().encode(text)
    return state.validate_tokens(ids) == len(ids) and bool(state.consume_tokens(ids)) and bool(state.is_accepting())


def prepared(family: str, prompt: str = "", **fields: Any) -> tuple[Family, ToolPlan, Preparation]:
    turn = ToolPlan(**{"guide_types": GUIDES, **fields})
    return FAMILIES[family], turn, FAMILIES[family].prepare(turn, prompt)


def guide(family: str, prompt: str = "", **fields: Any) -> Guide:
    _, _, preparation = prepared(family, prompt, **fields)
    assert preparation.guide is not None
    return preparation.guide


WISHES: tuple[dict[str, Any], ...] = (
    {"tools": (WEATHER, TREES, NOW), "choice": "required"},
    {"tools": (STRICT, TREES), "choice": "auto"},
    {"tools": (STRICT, NOW), "choice": "auto", "response": ANSWER},
    {"tools": (WEATHER,), "choice": "auto", "response": ANSWER, "parallel": False},
    {"response": ANSWER},
    {"response": Guide("json")},
    {"response": Guide("regex", "[a-z]+")},
    {"response": Guide("ebnf_grammar", 'root ::= "yes" | "no"')},
)


@pytest.mark.parametrize("family", sorted(FAMILIES))
@pytest.mark.parametrize("types", [GUIDES, GUIDES - {"structural_tag"}], ids=["tags", "no tags"])
def test_the_engine_takes_every_guide(family: str, types: frozenset[str]) -> None:
    for prompt in ("", "<think>\n", "<think>\n\n</think>\n\n"):
        for wish in WISHES:
            _, turn, preparation = prepared(family, prompt, **wish, guide_types=types)
            if preparation.guide is None:
                assert not preparation.guided
                assert turn.response is None
            else:
                assert preparation.guide.kind in types
                matcher(preparation.guide)


def test_a_required_call_is_one_of_the_tools_with_its_arguments() -> None:
    required = guide("plain", tools=(WEATHER, TREES, NOW), choice="required")
    assert keeps_to(required, '[{"name": "now", "arguments": {}}]')
    assert keeps_to(
        required, '[{"name": "get_weather", "arguments": {"city": "Köln"}}, {"name": "now", "arguments": {}}]'
    )
    assert not keeps_to(required, "[]")
    assert not keeps_to(required, '[{"name": "rm", "arguments": {}}]')
    assert not keeps_to(required, '[{"name": "now", "arguments": {"a": 1}}]')
    assert not keeps_to(required, '[{"name": "get_weather", "arguments": {"city": 1}}]')
    assert not keeps_to(required, '[{"name": "now", "arguments": {}, "more": 1}]')


def test_references_inside_a_tools_schema_keep_their_meaning() -> None:
    required = guide("plain", tools=(WEATHER, TREES), choice="required")
    call = '[{"name": "plant", "arguments": %s}]'
    assert keeps_to(required, call % '{"root": {"children": [{"children": [], "name": "b"}], "name": "a"}}')
    assert keeps_to(
        required, call % '{"root": {"name": "a"}, "const": {"$ref": "#/x"}, "$ref": 3, "same": {"name": "b"}}'
    )
    assert not keeps_to(required, call % '{"root": {"children": [{"name": "c"}], "name": "a"}}')
    assert not keeps_to(required, call % '{"root": {"name": "a"}, "same": {"name": "c"}}')


CALLS = {
    "qwen3": '<tool_call>\n{"name": "now", "arguments": %s}\n</tool_call>',
    "harmony": "<|channel|>commentary to=functions.now <|constrain|>json<|message|>%s<|call|>",
}
FINAL = {"qwen3": "%s", "harmony": "<|channel|>final<|message|>%s"}
GPT_OSS = template("gpt_oss").render([{"role": "user", "content": "How many?"}])
GPT_OSS_RESULTS = template("gpt_oss").render(MESSAGES, tools=TOOLS)
ANALYSIS = "I count.<|end|><|start|>assistant"


@pytest.mark.parametrize(
    ("name", "prompt", "reasoning"),
    [
        ("qwen3", "", "<think>\nI count.\n</think>\n\n"),
        ("qwen3", "<think>\n", "I count.\n</think>\n\n"),
        ("qwen3", "</think>\n\n", ""),
        ("harmony", GPT_OSS, f"<|channel|>analysis<|message|>{ANALYSIS}"),
        ("harmony", GPT_OSS, ""),
        ("harmony", GPT_OSS_RESULTS, f"<|channel|>analysis<|message|>{ANALYSIS}"),
        ("harmony", f"{GPT_OSS}<|channel|>analysis<|message|>", ANALYSIS),
        ("harmony", f"{GPT_OSS}<|channel|>analysis<|message|>{ANALYSIS}", ""),
    ],
    ids=[
        "fresh",
        "opened",
        "closed",
        *(f"gpt-oss-{each}" for each in ("fresh", "direct", "results", "opened", "closed")),
    ],
)
@pytest.mark.parametrize(
    "fields", [{"response": ANSWER}, {"tools": (NOW,), "choice": "required"}], ids=["content", "call"]
)
def test_a_guide_begins_after_the_reasoning(name: str, prompt: str, reasoning: str, fields: dict[str, Any]) -> None:
    form, *values = (FINAL[name], '{"n": 3}', '{"n": "x"}') if "response" in fields else (CALLS[name], "{}", "[]")
    good, bad = (form % value for value in values)
    behind = guide(name, prompt, **fields)
    assert keeps_to(behind, reasoning + good)
    assert not keeps_to(behind, reasoning + bad)
    assert not keeps_to(behind, reasoning + "No.")
    family, turn, preparation = prepared(name, prompt, **fields)
    kinds = [type(event).__name__ for event in parse(family.parser(turn, preparation, prompt), reasoning + good)]
    last = ["Content"] if "response" in fields else ["CallStart", "CallArguments"]
    assert kinds == (["Reasoning"] if reasoning else []) + last


@pytest.mark.parametrize(
    "name", [name for name, family in FAMILIES.items() if isinstance(family, ModelFamily) and family.tags]
)
def test_a_guide_leaves_a_new_turn_its_reasoning(name: str) -> None:
    family = FAMILIES[name]
    assert isinstance(family, ModelFamily)
    assert family.tags is not None
    tags, new = family.tags, prompts(family)[0]
    thought, answer = f"{tags.open}Hm.{tags.close}{tags.between}", f'{tags.final}{{"n": 3}}'
    for prompt in (new, f"{thought}{answer}\nuser: Hi{new}"):
        fresh = guide(name, prompt, response=ANSWER)
        assert keeps_to(fresh, thought + answer)
        assert keeps_to(fresh, answer)
        assert not keeps_to(fresh, thought + "No.")
    behind = guide(name, thought, response=ANSWER)
    assert keeps_to(behind, answer)
    assert not keeps_to(behind, thought + answer)


def test_without_structural_tags_a_guide_leaves_no_room_for_reasoning() -> None:
    family, turn, preparation = prepared("qwen3", "<think>\n", response=ANSWER, guide_types=frozenset({"json_schema"}))
    assert preparation.guide == ANSWER
    assert [type(e).__name__ for e in parse(family.parser(turn, preparation, "<think>\n"), '{"n": 3}')] == ["Content"]


XML = (
    "<tool_call>\n<function=edit>\n<parameter=path>\n%s\n</parameter>\n<parameter=mode>\n%s\n</parameter>\n"
    "<parameter=lines>\n%s\n</parameter>\n</function>\n</tool_call>"
)
EDIT = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "description": "where"},
        "mode": {"enum": ["add", "drop"]},
        "lines": {"type": "array", "items": {"$ref": "#/$defs/Line"}},
    },
    "required": ["path", "mode", "lines"],
    "additionalProperties": False,
    "$defs": {"Line": {"type": "integer"}},
}


def test_strict_xml_calls_are_held_to_their_schema() -> None:
    edit = tool("edit", EDIT, strict=True)
    for family in ("qwen3_coder", "qwen3_5"):
        strict = guide(family, tools=(edit, NOW), choice="auto")
        assert keeps_to(strict, "I edit.\n" + XML % ("a <b> c", "add", "[1, 2]"))
        assert keeps_to(strict, "<tool_call>\n<function=now>\n</function>\n</tool_call>")
        assert not keeps_to(strict, XML % ("a", "change", "[1]"))
        assert not keeps_to(strict, XML % ("a", "add", '["x"]'))


OPTIONAL = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "note": {"anyOf": [{"$ref": "#/$defs/text"}, {"type": "null"}]},
        "mode": {"anyOf": [{"enum": ["add", "drop"], "type": "string"}, {"type": "null"}]},
        "lines": {"type": ["integer", "null"]},
    },
    "required": ["mode"],
    "additionalProperties": False,
    "$defs": {"text": {"type": "string"}},
}
TAGGED = {
    "qwen3_coder": (
        "<tool_call>\n<function=edit>\n",
        "<parameter=%s>\n%s\n</parameter>\n",
        "</function>\n</tool_call>",
    ),
    "glm": ("<tool_call>edit\n", "<arg_key>%s</arg_key>\n<arg_value>%s</arg_value>\n", "</tool_call>"),
}


@pytest.mark.parametrize("family", TAGGED)
def test_arguments_in_tags_may_be_missing_or_null(family: str) -> None:
    strict = guide(family, tools=(tool("edit", OPTIONAL, strict=True),), choice="auto")
    before, argument, after = TAGGED[family]

    def keeps(**values: str) -> bool:
        return keeps_to(strict, before + "".join(argument % pair for pair in values.items()) + after)

    assert keeps(mode="add")
    assert keeps(path="a", note="null", mode="null", lines="3")
    assert keeps(note="x < y", mode="drop", lines="null")
    assert not keeps(path="a")
    assert not keeps(mode="change")
    assert not keeps(mode="add", lines="many")
    assert not keeps(mode="add", other="x")


@pytest.mark.parametrize(
    "change",
    [
        {"additionalProperties": True},
        {"properties": {"path": {"type": "string", "maxLength": 3}}, "required": ["path"]},
        {"properties": {"path": {"type": ["string", "integer"]}}, "required": ["path"]},
        {
            "properties": {"path": {"anyOf": [{"type": "string", "pattern": "a"}, {"type": "null"}]}},
            "required": ["path"],
        },
        {"properties": {"path": {"type": "object", "$ref": "#/properties/x"}}, "required": ["path"]},
        {
            "properties": {"path": {"type": "string", "anyOf": [{"$ref": "#/$defs/loop"}]}},
            "$defs": {"loop": {"$ref": "#/$defs/loop"}},
        },
        {"properties": {"path": {"type": "string", "anyOf": 5, "enum": 5}}},
    ],
    ids=["any", "limited", "union", "limited or null", "reference", "loop", "no schema"],
)
def test_xml_calls_are_not_guided_where_bare_text_cannot_be(change: dict[str, Any]) -> None:
    _, _, preparation = prepared("qwen3_coder", tools=(tool("edit", {**EDIT, **change}, strict=True),), choice="auto")
    assert (preparation.guide, preparation.guided) == (None, False)


def test_nothing_is_guided_that_need_not_be() -> None:
    for fields in ({}, {"tools": (WEATHER,), "choice": "auto"}, {"tools": (STRICT,), "choice": "none"}):
        assert prepared("hermes", **fields)[2].guide is None


def test_nothing_is_guided_where_the_engine_cannot() -> None:
    for choice in ("auto", "required"):
        _, _, preparation = prepared("hermes", tools=(STRICT,), choice=choice, guide_types=frozenset())
        assert (preparation.guide, preparation.guided) == (None, False)


def test_markers_are_seen_in_turns_with_tools_only() -> None:
    assert prepared("hermes", tools=(NOW,), choice="auto")[2].special == {"<tool_call>", "</tool_call>"}
    assert prepared("hermes")[2].special == frozenset()
    assert prepared("qwen3")[2].special == {"<think>", "</think>"}
    assert prepared("llama3_json")[2].stop == ("<|eom_id|>",)


PLAN = {
    "type": "object",
    "properties": {
        "note": {"type": ["string", "null"]},
        "days": {"type": "integer"},
        "city": {"type": "string"},
        "now": {"type": "boolean"},
    },
    "required": ["city"],
    "additionalProperties": False,
}
ROWS = {
    "lfm2": ("<|tool_call_start|>[%s]<|tool_call_end|>", "(", "=", ", ", ")", '"', "True"),
    "olmo3": ("<function_calls>\n%s\n</function_calls>", "(", "=", ", ", ")", '"', "False"),
    "gemma4": ("<|tool_call>call:%s<tool_call|>", "{", ":", ",", "}", '<|"|>', "true"),
    "functiongemma": ("<start_function_call>call:%s<end_function_call>", "{", ":", ",", "}", "<escape>", "false"),
}


@pytest.mark.parametrize("family", sorted(ROWS))
@pytest.mark.parametrize("required", [("city",), ()], ids=["one required", "none required"])
def test_strict_arguments_in_a_row_are_held_and_read(family: str, required: tuple[str, ...]) -> None:
    block, begin, equals, comma, end, quote, true = ROWS[family]
    plan = tool("plan", {**PLAN, "required": required}, strict=True)
    chosen, turn, preparation = prepared(family, tools=(plan,), choice="auto")
    assert preparation.guide is not None

    def call(**values: str) -> str:
        return block % f"plan{begin}{comma.join(name + equals + value for name, value in values.items())}{end}"

    first = {"city": f"{quote}Köln, )]{quote}"}
    rest = {"note": "null", "days": "3"}
    values = {**first, **rest, "now": true} if required else {**rest, **first, "now": true}
    for dropped in ((), ("note",), ("days", "now"), ("note", "days", "now")):
        text = call(**{name: value for name, value in values.items() if name not in dropped})
        assert keeps_to(preparation.guide, text)
        events = parse(chosen.parser(turn, preparation, ""), text)
        (arguments,) = [event.text for event in events if type(event).__name__ == "CallArguments"]
        assert json.loads(arguments)["city"] == "Köln, )]"
        assert ("days" in json.loads(arguments)) is ("days" not in dropped)
    assert keeps_to(preparation.guide, call()) is not bool(required)
    assert not keeps_to(preparation.guide, call(city="3"))
    assert not keeps_to(preparation.guide, call(city=first["city"], days="many"))
    assert not keeps_to(preparation.guide, call(city=first["city"], more="3"))
