"""Structured output: the guide that is sent, the check where there is none, and what of schemas is refused."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest

from gateway.generation import Capability
from gateway.text.bad_request import BadRequestError
from gateway.text.guides import check_schema, wellformed
from tests.app.harness import gateway, says
from tests.app.scripted import MODEL
from tests.openai import peer_parameters as peers
from tests.openai.tools_harness import CITY, GUIDED, TOOLS, UNGUIDED, accumulated, streamed, tool, whole

VALIDATE = {"structured_output_without_guidance": "validate", "max_seq_len": 4096}


OBJECT = {"type": "object", "additionalProperties": True}
GRAMMAR = 'root ::= "a"'


def schema_format(schema: Any, **more: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, **more}}


def form(kind: str, **fields: Any) -> dict[str, Any]:
    return {"response_format": {"type": kind, **fields}}


@pytest.mark.parametrize(
    ("body", "kind", "text"),
    [
        (form("json_object"), "json_schema", OBJECT),
        ({"response_format": schema_format(CITY, strict=True)}, "json_schema", CITY),
        (form("json_schema", json_schema={"name": "x", "strict": True}), "json_schema", OBJECT),
        (form("json", schema=CITY), "json_schema", CITY),
        (form("json_object", schema=CITY), "json_schema", CITY),
        (form("regex", regex="a+"), "regex", "a+"),
        (form("ebnf", ebnf=GRAMMAR), "ebnf_grammar", GRAMMAR),
        ({"structured_outputs": {"json": json.dumps(CITY)}}, "json_schema", CITY),
        ({"structured_outputs": {"json_object": True}}, "json_schema", OBJECT),
        ({"structured_outputs": {"regex": "a+"}}, "regex", "a+"),
        ({"structured_outputs": {"choice": ["a.b", "c"]}}, "regex", r"(a\.b)|(c)"),
        ({"structured_outputs": {"grammar": GRAMMAR}}, "ebnf_grammar", GRAMMAR),
        ({"guided_json": CITY}, "json_schema", CITY),
        ({"guided_regex": "a+"}, "regex", "a+"),
        ({"guided_choice": ["a"]}, "regex", "(a)"),
        ({"guided_grammar": GRAMMAR}, "ebnf_grammar", GRAMMAR),
        ({"json_schema": CITY}, "json_schema", CITY),
        ({"json_schema": json.dumps(CITY)}, "json_schema", CITY),
        ({"regex": "a+"}, "regex", "a+"),
        ({"ebnf": GRAMMAR}, "ebnf_grammar", GRAMMAR),
        ({"grammar": GRAMMAR}, "ebnf_grammar", GRAMMAR),
    ],
    ids=lambda value: str(value)[:50],
)
async def test_what_the_engine_is_told(folder: Path, body: dict[str, Any], kind: str, text: Any) -> None:
    async with gateway(folder, features=GUIDED, max_seq_len=4096) as running:
        await whole(running, **body)
        guide = running.engine.requests[0].params.guide
        assert guide is not None
        assert guide.kind == kind
        assert (guide.text if isinstance(text, str) else json.loads(guide.text)) == text
        answer = await running.client.post("/v1/completions", json={"model": MODEL, "prompt": "x", **body})
        assert answer.status_code == 200
        assert running.engine.requests[1].params.guide == guide


@pytest.mark.parametrize(("name", "value"), peers.CONSTRAINTS, ids=str)
async def test_a_constraint_that_is_not_served_is_refused_and_never_dropped(
    folder: Path, name: str, value: Any
) -> None:
    fields = {name: value}
    async with gateway(folder, features=GUIDED, max_seq_len=4096) as running:
        answers = [
            await running.chat(**fields),
            await running.client.post("/v1/completions", json={"model": MODEL, "prompt": "x", **fields}),
        ]
        for answer in answers:
            error = answer.json()["error"]
            assert (answer.status_code, error["code"]) == (400, "unsupported_parameter")
            assert error["param"].partition(".")[0] == name
        assert running.engine.requests == []


async def test_the_type_of_a_form_decides_which_guide_it_takes(folder: Path) -> None:
    only = dataclasses.replace(
        GUIDED,
        guide_types=frozenset({"regex"}),
        capabilities={"guided_regex": Capability("native", "by guided decoding.")},
    )
    async with gateway(folder, features=only, max_seq_len=4096) as running:
        assert (await running.chat(response_format={"type": "regex", "regex": "a+"})).status_code == 200
        for form in ({"type": "json_object"}, {"type": "ebnf", "ebnf": 'root ::= "a"'}):
            error = (await running.chat(response_format=form)).json()["error"]
            assert (error["param"], error["code"]) == ("response_format", "unsupported_parameter")


async def test_structural_tags_go_only_where_they_are_taken(folder: Path) -> None:
    tag = {"type": "structural_tag", "format": {"type": "json_schema", "json_schema": CITY}}
    async with gateway(folder, features=GUIDED, max_seq_len=4096) as running:
        error = (await running.chat(response_format=tag)).json()["error"]
        assert (error["param"], error["code"]) == ("response_format", "unsupported_parameter")
        assert "ebnf_grammar" in error["message"]


@pytest.mark.parametrize(
    ("form", "good", "bad"),
    [
        ({"response_format": schema_format(CITY)}, '{"city": "Rome"}', '{"town": "Rome"}'),
        ({"response_format": schema_format(CITY)}, '{"city": "Rome"}', "Rome."),
        ({"response_format": {"type": "json_object"}}, '{"a": [1]}', "[1]"),
        ({"structured_outputs": {"choice": ["yes", "no"]}}, "yes", "yes."),
    ],
)
async def test_without_guidance_the_finished_answer_may_be_checked(
    folder: Path, form: dict[str, Any], good: str, bad: str
) -> None:
    async with gateway(folder, says(folder, good), features=UNGUIDED, **VALIDATE) as running:
        assert (await whole(running, **form)).choices[0].message.content == good
        assert accumulated(await streamed(running, **form))["content"] == good
        assert (await whole(running, max_tokens=2, **form)).choices[0].finish_reason == "length"
        assert accumulated(await streamed(running, max_tokens=2, **form))["finish_reason"] == "length"
    async with gateway(folder, says(folder, bad), features=UNGUIDED, **VALIDATE) as running:
        answer = await running.chat(**form)
        assert (answer.status_code, answer.json()["error"]["code"]) == (500, "invalid_model_output")
        for n in (1, 2):
            answer = await running.chat(stream=True, n=n, **form)
            assert answer.status_code == 200
            *said, last = [json.loads(event.removeprefix("data: ")) for event in answer.text.strip().split("\n\n")]
            assert last["error"]["code"] == "invalid_model_output"
            first = [chunk["choices"][0] for chunk in said if chunk["choices"][0]["index"] == 0]
            assert (
                "".join(choice["delta"].get("content") or "" for choice in first) == bad
            )  # all of it before the error


async def test_what_a_check_cannot_decide_is_refused(folder: Path) -> None:
    async with gateway(folder, features=UNGUIDED, **VALIDATE) as running:
        for part in ({"type": "string", "pattern": "a"}, {"type": "string", "format": "regex"}):
            schema = {"type": "object", "properties": {"x": part}}
            error = (await running.chat(response_format=schema_format(schema))).json()["error"]
            keyword = "pattern" if "pattern" in part else "format"
            assert error["param"] == f"response_format.json_schema.schema.properties.x.{keyword}"
        error = (await running.chat(guided_regex="a+")).json()["error"]
        assert error["param"] == "guided_regex"


async def test_a_form_beside_tools_lets_the_model_choose(shows: Path) -> None:
    text = '{"city": "Rome"}'
    async with gateway(shows, says(shows, text), features=GUIDED, max_seq_len=4096) as running:
        choice = (await whole(running, tools=TOOLS, response_format=schema_format(CITY))).choices[0]
        assert (choice.message.content, choice.message.tool_calls) == (text, None)
        guide = running.engine.requests[0].params.guide
        assert guide is not None
        assert {part.get("type") for part in json.loads(guide.text)["anyOf"]} == {"array", "object"}
    call = '[{"name": "time", "arguments": {"city": "Rome"}}]'
    async with gateway(shows, says(shows, call), features=GUIDED, max_seq_len=4096) as running:
        choice = (await whole(running, tools=TOOLS, response_format=schema_format(CITY))).choices[0]
        assert [each.function.name for each in choice.message.tool_calls or []] == ["time"]
        assert choice.finish_reason == "tool_calls"


PATH = "response_format.json_schema.schema"
UNSUPPORTED: list[tuple[Any, str]] = [
    ({"type": "string", "not": {}}, "not"),
    ({"type": "array", "uniqueItems": True}, "uniqueItems"),
    ({"type": "array", "contains": {}}, "contains"),
    ({"type": "number", "multipleOf": 2}, "multipleOf"),
    ({"type": "string", "format": "regex"}, "format"),
    ({"type": "string", "pattern": "a", "maxLength": 3}, "maxLength"),
    ({"type": "string", "pattern": "(?=a)b"}, "pattern"),
    ({"type": "object", "patternProperties": {"a": {}}}, "patternProperties"),
    ({"type": "object", "propertyNames": {"maxLength": 3}}, "propertyNames"),
    ({"type": "object", "if": {}, "then": {}}, "if"),
    ({"type": "object", "dependentRequired": {"a": ["b"]}}, "dependentRequired"),
    ({"allOf": [{"type": "object"}, {"type": "object"}]}, "allOf"),
    ({"oneOf": [{"type": "object"}, {"type": "object", "properties": {}}]}, "oneOf"),
    ({"anyOf": [{"type": ["string", "null"]}], "type": "string"}, "type"),
    ({"type": "array", "items": [{"type": "string", "not": {}}]}, "items[0].not"),
]
WRONG: list[tuple[Any, str]] = [
    ({"type": "strin"}, "type"),
    ({"type": []}, "type"),
    ({"type": ["string", "string"]}, "type"),
    ({"properties": []}, "properties"),
    ({"properties": {"a": 5}}, "properties.a"),
    ({"required": "a"}, "required"),
    ({"required": ["a", "a"]}, "required"),
    ({"enum": []}, "enum"),
    ({"type": "string", "enum": [1]}, "enum"),
    ({"minLength": -1}, "minLength"),
    ({"minLength": 1e9}, "minLength"),
    ({"minItems": 3, "maxItems": 2}, "minItems"),
    ({"minimum": "1"}, "minimum"),
    ({"pattern": "("}, "pattern"),
    ({"anyOf": []}, "anyOf"),
    ({"anyOf": [5]}, "anyOf[0]"),
    ({"items": 5}, "items"),
    ({"$ref": "#/$defs/A"}, "$ref"),
    ({"$ref": "https://example.com/schema"}, "$ref"),
    ({"$ref": "#"}, "$ref"),
    ({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}}, "$ref"),
    ({"$ref": 5}, "$ref"),
    ({"type": "object", "required": ["a"], "additionalProperties": False}, "required[0]"),
    ({"properties": {"a": {"items": {"type": "x"}}}}, "properties.a.items.type"),
]


@pytest.mark.parametrize(("schema", "where"), [*UNSUPPORTED, *WRONG], ids=lambda value: str(value)[:60])
async def test_what_is_wrong_in_a_schema_is_named_by_its_path(folder: Path, schema: Any, where: str) -> None:
    async with gateway(folder, features=GUIDED) as running:
        answer = await running.chat(response_format=schema_format(schema))
        assert answer.status_code == 400
        error = answer.json()["error"]
        assert error["param"] == f"{PATH}.{where}"
        assert error["code"] in {"invalid_json_schema", "unsupported_json_schema"}
        assert running.engine.requests == []


async def test_schemas_that_would_take_long_are_refused_soon(folder: Path) -> None:
    constants = {"oneOf": [{"const": index} for index in range(3000)]}
    doubling: Any = {
        f"a{index}": {"anyOf": [{"$ref": f"#/$defs/a{index + 1}"}, {"$ref": f"#/$defs/a{index + 1}"}]}
        for index in range(40)
    }
    exponential = {"type": "object", "$defs": {**doubling, "a40": {"type": "object", "required": ["x"]}},
                   "properties": {"a": {"$ref": "#/$defs/a0"}}}  # fmt: skip
    async with gateway(folder, features=GUIDED) as running:
        error = (await running.chat(response_format=schema_format(constants))).json()["error"]
        assert (error["code"], error["param"]) == ("unsupported_json_schema", f"{PATH}.oneOf")
        assert running.engine.requests == []
    async with gateway(folder, says(folder, '{"a": {}}'), features=UNGUIDED, **VALIDATE) as running:
        answer = await running.chat(response_format=schema_format(exponential))
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == PATH


async def test_schemas_beyond_any_size(folder: Path) -> None:
    deep: Any = {"type": "string"}
    for _ in range(40):
        deep = {"type": "array", "items": deep}
    many = {"type": "object", "properties": {f"p{index}": {} for index in range(5001)}}
    enum = {"enum": list(range(1001))}
    long = {"enum": ["x" * 200_000]}
    async with gateway(folder, features=GUIDED) as running:
        for schema in (deep, many, enum, long):
            error = (await running.chat(response_format=schema_format(schema))).json()["error"]
            assert error["type"] == "invalid_request_error"
            assert running.engine.requests == []


TAG = {"structures": [{"begin": "<", "end": ">"}], "triggers": [5]}
ALLOWED = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [tool("gone")]}}
CALLS = [{"id": "call_a", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
CALLED = {"role": "assistant", "tool_calls": CALLS}
RESULT = {"role": "tool", "content": "x", "tool_call_id": "call_a"}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"response_format": "json"}, "response_format"),
        ({"response_format": {}}, "response_format"),
        (form("json_schema"), "response_format.json_schema"),
        (form("json_schema", json_schema={}), "response_format.json_schema.name"),
        (form("json_schema", json_schema={"name": "x", "type": "object"}), "response_format.json_schema.schema"),
        ({"response_format": schema_format([])}, "response_format.json_schema.schema"),
        (form("regex", value="a"), "response_format.regex"),
        (form("ebnf", ebnf=""), "response_format.ebnf"),
        (form("grammar", grammar="root ::= x"), "response_format"),
        (form("json_object", schema={"type": "x"}), "response_format.schema.type"),
        (form("structural_tag"), "response_format"),
        (form("structural_tag", structures=[5], triggers=["<"]), "response_format.structures[0]"),
        ({"regex": "a", "ebnf": GRAMMAR}, "ebnf"),
        ({"structured_outputs": {"json": "no"}}, "structured_outputs.json"),
        ({"structured_outputs": {"regex": "("}}, "structured_outputs.regex"),
        ({"guided_regex": "a", "response_format": {"type": "json_object"}}, "guided_regex"),
        ({"guided_choice": [""]}, "guided_choice[0]"),
        ({"guided_regex": r"(a)\1"}, "guided_regex"),
        ({"guided_json": {"type": "x"}}, "guided_json.type"),
        ({"guided_json": 5}, "guided_json"),
        ({"structured_outputs": {"json": [1]}}, "structured_outputs.json"),
        ({"guided_json": '{"maxLength": 1e999}'}, "guided_json"),
        ({"guided_json": '{"type": "integer", "enum": [Infinity]}'}, "guided_json"),
        ({"guided_json": '{"enum": [' + "[" * 500 + "]" * 500 + "]}"}, "guided_json"),
        ({"guided_json": r'{"const": "\ud800"}'}, "guided_json"),
        ({"structured_outputs": {"structural_tag": TAG}}, "structured_outputs.structural_tag.triggers[0]"),
        ({"guided_regex": "a", "tools": TOOLS}, "guided_regex"),
        ({"tools": [tool("a b")]}, "tools[0].function.name"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [tool("f", {"type": "array"})]}, "tools[0].function.parameters.type"),
        ({"tools": [tool("f", {"items": {"type": "y"}}, strict=True)]}, "tools[0].function.parameters.items.type"),
        ({"tools": TOOLS * 70}, "tools"),
        ({"tools": TOOLS, "tool_choice": "sometimes"}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": tool("gone")}, "tool_choice.function.name"),
        ({"tools": TOOLS, "tool_choice": ALLOWED}, "tool_choice.allowed_tools.tools[0].function.name"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"functions": [{"name": "f"}], "function_call": {"name": "g"}}, "function_call.name"),
        ({"function_call": {"name": "g"}}, "function_call"),
        ({"parallel_tool_calls": "yes"}, "parallel_tool_calls"),
        ({"tools": [tool("f", {"type": "object", "multipleOf": 2}, strict=True)], "tool_choice": "required"},
         "tools[0].function.parameters.multipleOf"),
        ({"messages": [RESULT]}, "messages[0].tool_call_id"),
        ({"messages": [CALLED, {**RESULT, "tool_call_id": "call_b"}]}, "messages[1].tool_call_id"),
        ({"messages": [RESULT, CALLED]}, "messages[0].tool_call_id"),
        ({"messages": [CALLED, RESULT, RESULT]}, "messages[2].tool_call_id"),
    ],
    ids=lambda value: str(value)[:70],
)  # fmt: skip
async def test_what_is_wrong_is_named(shows: Path, body: dict[str, Any], param: str) -> None:
    async with gateway(shows, features=GUIDED) as running:
        answer = await running.chat(**body)
        assert answer.status_code == 400, answer.text
        assert answer.json()["error"]["param"] == param
        assert running.engine.requests == []


GOOD = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def test_a_bad_schema_is_refused_each_time_by_the_path_that_it_has_then() -> None:
    wellformed._passed.clear()
    for path in ("tools[0].function.parameters", "tools[7].function.parameters"):
        with pytest.raises(BadRequestError) as rejected:
            check_schema({**GOOD, "type": "city"}, path)
        assert rejected.value.param == f"{path}.type"


@pytest.mark.parametrize(("good", "bad"), [(math.nan, None), (1, True), (2, "2"), (3, [3])])
def test_a_schema_that_is_written_alike_is_another(good: Any, bad: Any) -> None:
    wellformed._passed.clear()
    check_schema({"minimum": good}, "schema")
    with pytest.raises(BadRequestError):
        check_schema({"minimum": bad}, "schema")
