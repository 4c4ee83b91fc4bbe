"""Schemas that clients send: what of them reaches the engine by its backend, what is refused at once and where."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from gateway.text.bad_request import BadRequestError
from gateway.text.guides import check_schema, guided_schema, readable_part
from gateway.text.guides.checked import checker
from gateway.text.guides.guide import GuideBackend
from gateway.text.guides.keywords import document
from gateway.text.guides.patterns import CHECKED, STRING_FORMATS, pattern_of
from tests.app.harness import gateway, says
from tests.openai.test_chat_structured import PATH, VALIDATE, schema_format
from tests.openai.tools_harness import GUIDED, TOOLS, UNGUIDED, tool, whole

LLGUIDANCE = dataclasses.replace(GUIDED, guide_backend="llguidance")
HUGE = 10**400
BACKENDS: tuple[GuideBackend | None, ...] = (None, "xgrammar", "llguidance")
OPEN = {"type": "object", "additionalProperties": True}
EMPTY = {"type": "object", "additionalProperties": False}
BAD = {"type": "any"}
GOOD = {"type": "string"}


def sent(schema: Any, backend: GuideBackend | None = None, *, exact: bool = True) -> dict[str, Any]:
    check_schema(schema, "schema")
    return guided_schema(schema, "schema", exact=exact, backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("schema", "guide"),
    [
        ({"type": "object", "maxProperties": 0}, EMPTY),
        ({"type": "object", "properties": {"a": {}}, "maxProperties": 0, "additionalProperties": True}, EMPTY),
        ({"type": "string", "minLength": 0, "maxLength": 0}, {"type": "string", "minLength": 0, "maxLength": 0}),
        ({"type": "array", "maxItems": 0}, {"type": "array", "maxItems": 0, "items": {}}),
        ({"type": "integer", "maximum": 0}, {"type": "integer", "maximum": 0}),
        ({"type": "string", "pattern": ""}, {"type": "string"}),
        ({"const": None}, {"const": None}),
        ({"const": {}}, {"const": {}}),
        ({"enum": ["", 0, False, [], {}]}, {"enum": ["", 0, False, [], {}]}),
        ({"type": "object", "properties": {}}, EMPTY),
        ({"type": "object", "required": [], "additionalProperties": {}},
         {"type": "object", "additionalProperties": {}}),
        # What old drafts and generators write.
        ({"type": ["string", "null"], "enum": ["a", None, 5]}, {"enum": ["a", None]}),
        ({"enum": ["a", "bcd", 7], "maxLength": 1}, {"enum": ["a", 7]}),
        ({"enum": [1, 1.0]}, {"enum": [1, 1.0]}),
        ({"const": "a", "anyOf": [{"type": "null"}, {"maxLength": 1}]}, {"const": "a"}),
        ({"type": "integer", "minimum": 3, "exclusiveMinimum": True}, {"type": "integer", "exclusiveMinimum": 3}),
        ({"type": "integer", "minimum": 3, "exclusiveMinimum": False}, {"type": "integer", "minimum": 3}),
        ({"type": "array", "items": [{"type": "null"}], "additionalItems": False},
         {"type": "array", "prefixItems": [{"type": "null"}], "items": False}),
        ({"anyOf": [False, {"type": "null"}, {"type": "string", "enum": [1]}]}, {"type": "null"}),
        ({"type": "object", "properties": {"a": {"type": "string", "enum": [1]}}}, EMPTY),
        ({"type": "object", "additionalProperties": {}, "propertyNames": {"type": "string"}},
         {"type": "object", "additionalProperties": {}}),
        ({"type": "object", "properties": {"a": {"type": "null"}}, "unevaluatedProperties": False},
         {"type": "object", "properties": {"a": {"type": "null"}}, "additionalProperties": False}),
        ({"type": "string", "format": "x-own"}, {"type": "string"}),
        ({"type": "string", "$defs": {"unused": {"not": {}}}}, {"type": "string"}),
        ({"type": "array", "uniqueItems": True, "maxItems": 1}, {"type": "array", "maxItems": 1, "items": {}}),
    ],
    ids=str,
)  # fmt: skip
def test_what_the_engine_is_sent(schema: Any, guide: Any, backend: GuideBackend | None) -> None:
    assert sent(schema, backend) == guide


async def test_no_parameters_and_any_parameters_are_two_things(shows: Path) -> None:
    call = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
    for parameters, status in (({}, 200), (None, 500)):
        asked = tool("f", strict=True)
        asked["function"]["parameters"] = parameters
        async with gateway(shows, says(shows, call), features=UNGUIDED, **VALIDATE) as running:
            answer = await running.chat(tools=[asked], max_tokens=200)
            assert answer.status_code == status, answer.text


HUGE_SCHEMAS: list[tuple[Any, str | None]] = [
    ({"type": "integer", "minimum": HUGE}, "minimum"),
    ({"type": "integer", "maximum": -HUGE}, "maximum"),
    ({"type": "number", "exclusiveMinimum": HUGE}, "exclusiveMinimum"),
    ({"type": "number", "multipleOf": HUGE}, "multipleOf"),
    ({"const": HUGE}, "const"),
    ({"enum": [HUGE, 1.5]}, "enum"),
    ({"type": "string", "minLength": HUGE}, "minLength"),
    ({"type": "integer", "minimum": 0.5, "maximum": HUGE}, None),
    ({"type": "number", "minimum": -HUGE}, None),
    ({"type": "string", "maxLength": HUGE}, None),
    ({"type": "array", "maxItems": HUGE}, None),
    ({"type": "integer", "default": HUGE, "examples": [HUGE]}, None),
]


@pytest.mark.parametrize(("schema", "where"), HUGE_SCHEMAS, ids=lambda value: str(value)[:60])
async def test_huge_numbers_are_served_or_refused_by_their_path(shows: Path, schema: Any, where: str | None) -> None:
    inside = {"type": "object", "properties": {"x": schema}, "required": ["x"]}
    for features in (GUIDED, LLGUIDANCE):
        async with gateway(shows, features=features, max_seq_len=4096) as running:
            answer = await running.chat(response_format=schema_format(inside))
            assert answer.status_code == (400 if where else 200), answer.text
            if where:
                assert answer.json()["error"]["param"] == f"{PATH}.properties.x.{where}"
            strict = tool("f", inside, strict=True)
            answer = await running.chat(tools=[strict], tool_choice="required")
            assert answer.status_code == (400 if where else 200), answer.text
            answer = await running.chat(tools=[tool("f", inside)], tool_choice="required")
            assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(
    "value", [HUGE, -HUGE, [HUGE], {"1": HUGE}, {"a": [{"b": HUGE}]}], ids=lambda value: str(value)[:20]
)
async def test_huge_numbers_anywhere_in_a_body_are_the_clients_mistake(shows: Path, value: Any) -> None:
    fields = (
        "max_tokens", "max_completion_tokens", "seed", "logit_bias", "temperature", "top_p", "top_k", "min_p", "n",
        "stop", "stop_token_ids", "top_logprobs", "prompt_logprobs", "best_of", "length_penalty", "tools",
        "tool_choice", "metadata", "stream_options", "response_format", "structured_outputs", "guided_json",
        "chat_template_kwargs", "prediction", "messages", "documents", "something_else",
    )  # fmt: skip
    async with gateway(shows, features=GUIDED) as running:
        for field in fields:
            answer = await running.chat(**{field: value})
            assert answer.status_code < 500, (field, answer.text)


PLACE = {"type": "string", "maxLength": 3}
BY_NAME: list[Any] = [
    {"$id": "https://a.example/b.json", "properties": {"x": {"$ref": "c.json"}},
     "$defs": {"c": {"$id": "c.json", **PLACE}}},
    {"$id": "urn:uuid:1", "properties": {"x": {"$ref": "urn:uuid:1#/$defs/c"}}, "$defs": {"c": PLACE}},
    {"properties": {"x": {"$ref": "#place"}}, "$defs": {"c": {"$anchor": "place", **PLACE}}},
    {"$schema": "http://json-schema.org/draft-07/schema#", "properties": {"x": {"$ref": "#place"}},
     "definitions": {"c": {"$id": "#place", **PLACE}}},
    {"$schema": "http://json-schema.org/draft-04/schema#", "id": "http://a.example/",
     "properties": {"x": {"$ref": "c"}}, "definitions": {"c": {"id": "c", **PLACE}}},
    {"properties": {"x": {"$id": "sub/", "$ref": "#/$defs/c", "$defs": {"c": PLACE}}},
     "$defs": {"c": {"type": "null"}}},
    {"properties": {"x": {"$id": "sub/", "$ref": "#/$defs/c"}}, "$defs": {"c": PLACE}},
    {"properties": {"x": {"$ref": "#/components/c"}}, "components": {"c": PLACE}},
    {"properties": {"x": {"$ref": "#/properties/y"}, "y": PLACE, "z": {"$ref": "#/$defs/part0"}},
     "$defs": {"part0": {"type": "null"}}},
    {"properties": {"x": {"$ref": "#/$defs/a%20b~1c"}}, "$defs": {"a b/c": PLACE}},
]  # fmt: skip


@pytest.mark.parametrize("schema", BY_NAME, ids=str)
def test_references_by_name_lead_where_they_say(schema: Any) -> None:
    guide = sent({"type": "object", "required": ["x"], **schema})
    name = guide["properties"]["x"]["$ref"].rpartition("/")[2]
    assert guide["$defs"][name] == PLACE
    assert "$id" not in json.dumps(guide)
    fits = checker({"type": "object", "required": ["x"], **schema}, "schema")
    assert fits('{"x": "abc"}')
    assert not fits('{"x": "abcd"}')


@pytest.mark.parametrize(
    ("schema", "code"),
    [
        ({"$ref": "#nowhere"}, "invalid_json_schema"),
        ({"$ref": "#/x", "x": {"properties": 5}}, "invalid_json_schema"),
        ({"$ref": "#/x", "x": {"type": "strin"}}, "invalid_json_schema"),
        ({"$ref": "https://a.example/b.json"}, "unsupported_json_schema"),
        ({"$ref": "http://[#"}, "unsupported_json_schema"),
        ({"type": "string", "enum": [1]}, "unsupported_json_schema"),
        ({"enum": []}, "unsupported_json_schema"),
        ({"minLength": 3, "maxLength": 2}, "unsupported_json_schema"),
        ({"minimum": 3, "maximum": 2}, "unsupported_json_schema"),
        ({"pattern": "("}, "unsupported_json_schema"),
        ({"enum": list(range(1001))}, "unsupported_json_schema"),
        ({"properties": {"a": False}, "required": ["a"]}, "unsupported_json_schema"),
    ],
    ids=str,
)
def test_only_what_is_no_schema_is_called_invalid(schema: Any, code: str) -> None:
    for backend in BACKENDS:
        with pytest.raises(BadRequestError) as rejected:
            sent(schema, backend)
        assert rejected.value.code == code


TOGETHER: list[tuple[Any, str]] = [
    ({"type": "object", "patternProperties": {"^a": {"type": "null"}}}, "patternProperties"),
    ({"type": "number", "multipleOf": 0.5}, "multipleOf"),
    ({"type": "string", "pattern": "a", "maxLength": 3}, "maxLength"),
    ({"type": "string", "format": "date", "pattern": "^2"}, "format"),
    ({"$ref": "#/$defs/a", "maxLength": 2, "$defs": {"a": {"type": "string"}}}, "maxLength"),
    ({"type": "object", "properties": {"a": {}}, "anyOf": [{"required": ["a"]}, {"minProperties": 1}]}, "properties"),
    ({"allOf": [{"required": ["a"]}, {"required": ["b"]}]}, "allOf"),
    ({"type": "object", "propertyNames": {"pattern": "^a"}}, "propertyNames"),
]


@pytest.mark.parametrize(("schema", "where"), TOGETHER, ids=str)
async def test_llguidance_takes_what_others_do_not(folder: Path, schema: Any, where: str) -> None:
    async with gateway(folder, features=LLGUIDANCE) as running:
        assert (await running.chat(response_format=schema_format(schema))).status_code == 200
    for features in (GUIDED, dataclasses.replace(GUIDED, guide_backend="xgrammar")):
        async with gateway(folder, features=features) as running:
            error = (await running.chat(response_format=schema_format(schema))).json()["error"]
            assert (error["code"], error["param"]) == ("unsupported_json_schema", f"{PATH}.{where}")


REQUIRES_ITSELF = ("properties.a.$ref", "properties.a.items.$ref", "$ref")


@pytest.mark.parametrize(
    ("schema", "where"),
    [
        ({"type": "object", "properties": {"a": {}, "b": {}, "c": {}}, "maxProperties": 2}, "maxProperties"),
        ({"type": "number", "multipleOf": 1e20}, "multipleOf"),
        ({"type": "string", "pattern": "\\cA"}, "pattern"),
        ({"type": "object", "patternProperties": {"(?=a)": {}}}, "patternProperties.(?=a)"),
        ({"type": "object", "properties": {"n": {"allOf": [{"$ref": "#"}, {"required": ["x"]}]}}},
         "properties.n.allOf[0].$ref.properties.n.allOf[0].$ref"),
        ({"patternProperties": {"^x-": {}, "^[a-z]": {}}}, "patternProperties.^[a-z]"),
        ({"patternProperties": {"^a": {}, "^[(]|a": {}}}, "patternProperties.^[(]|a"),
        ({"allOf": [{"patternProperties": {"^x-": {}}}, {"patternProperties": {"^[a-z]": {}}}]}, "allOf"),
        ({"type": "integer", "multipleOf": 3, "minimum": 1, "maximum": 2}, "multipleOf"),
        ({"type": "integer", "multipleOf": 0.3, "minimum": 1, "exclusiveMaximum": 3}, "multipleOf"),
        ({"pattern": "^a$", "minLength": 3}, "minLength"),
        ({"pattern": "^ab", "maxLength": 1}, "maxLength"),
        ({"format": "uuid", "maxLength": 3}, "maxLength"),
        ({"format": "uri", "minLength": 200}, "minLength"),
        ({"anyOf": [{"type": "null"}, {"format": "uri", "minLength": 200}]}, "anyOf[1].minLength"),
        ({"enum": ["a"], "pattern": "b"}, "enum"),
        ({"allOf": [{"enum": ["a"]}, {"enum": ["b"]}]}, "allOf"),
        ({"allOf": [{"const": "a"}, {"minLength": 3}]}, "allOf"),
        ({"allOf": [{"enum": [1, 2]}, {"minimum": 3}]}, "allOf"),
        ({"allOf": [{"enum": ["a"]}, {"pattern": "b"}]}, "allOf"),
        ({"allOf": [{"minimum": 5}, {"maximum": 3}]}, "allOf"),
        ({"allOf": [{"multipleOf": 2, "minimum": 1}, {"multipleOf": 3, "maximum": 5}]}, "allOf"),
        ({"allOf": [{"minLength": 5}, {"maxLength": 3}]}, "allOf"),
        ({"allOf": [{"minItems": 5}, {"maxItems": 3}]}, "allOf"),
        ({"allOf": [{"type": "string"}, {"type": "integer"}]}, "allOf"),
        ({"allOf": [{"pattern": "^a$"}, {"pattern": "^b$"}]}, "allOf"),
        ({"anyOf": [{"minimum": 5}, {"minimum": 4}], "allOf": [{"maximum": 3}]}, "anyOf"),
        ({"allOf": [{"properties": {"a": {"minimum": 5}}, "required": ["a"]}, {"properties": {"a": {"maximum": 3}}}]},
         "allOf"),
        # What requires itself has no value, whatever the backend.
        ({"properties": {"a": {"$ref": "#"}}, "required": ["a"]}, "properties.a.$ref"),
        ({"properties": {"a": {"type": "array", "minItems": 1, "items": {"$ref": "#"}}}, "required": ["a"]},
         "properties.a.items.$ref"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"properties": {"b": {"$ref": "#/$defs/b"}}, "required": ["b"]},
                                         "b": {"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b/anyOf/0"}]}}},
         "$ref"),
    ],
    ids=str,
)  # fmt: skip
def test_what_llguidance_would_refuse_late_is_refused_at_once(schema: Any, where: str) -> None:
    for backend in BACKENDS if where in REQUIRES_ITSELF else ("llguidance",):
        with pytest.raises(BadRequestError) as rejected:
            sent(schema, backend)
        assert (rejected.value.param, rejected.value.code) == (f"schema.{where}", "unsupported_json_schema")


@pytest.mark.parametrize(
    "end",
    [
        {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
        {"type": "array", "items": {"$ref": "#"}},
        {"type": ["object", "null"], "allOf": [{"$ref": "#"}]},
    ],
    ids=str,
)
def test_a_schema_that_requires_itself_and_may_end_is_served(end: Any) -> None:
    schema = {"type": "object", "properties": {"a": end}, "required": ["a"]}
    assert sent(schema, "llguidance")["required"] == ["a"]


def test_what_cannot_end_is_no_alternative() -> None:
    endless = {"type": "object", "properties": {"a": {"$ref": "#/$defs/endless"}}, "required": ["a"]}
    schema = {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/endless"}], "$defs": {"endless": endless}}
    assert sent(schema, "llguidance") == {"type": "null"}


LEFT_OUT: list[Any] = [
    ({"type": "object", "patternProperties": {"^x-": {"type": "null"}, "^[a-z]": {}, "^[0-9]+$": {}}},
     {"type": "object", "patternProperties": {"^x-": {"type": "null"}, "^[0-9]+$": {}}, "additionalProperties": True}),
    ({"allOf": [{"patternProperties": {"^x-": {}}}, {"patternProperties": {"^[a-z]": {}}}]}, {"type": "object"}),
    ({"allOf": [{"minimum": 5}, {"maximum": 3}]}, {"type": "number"}),
    ({"allOf": [{"const": "a"}, {"type": "integer"}]}, {"type": "integer"}),
    ({"enum": ["a", "c"], "pattern": "b"}, {"enum": ["a", "c"]}),
    ({"type": "integer", "multipleOf": 3, "minimum": 1, "maximum": 2}, {"type": "integer", "minimum": 1, "maximum": 2}),
    ({"pattern": "^a$", "minLength": 3}, {"type": "string", "pattern": "^a$"}),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "guide"), LEFT_OUT, ids=str)
async def test_what_llguidance_would_refuse_is_left_out_of_tools(shows: Path, schema: Any, guide: Any) -> None:
    assert sent(schema, "llguidance", exact=False) == guide
    inside = {"type": "object", "properties": {"x": schema}, "required": ["x"]}
    async with gateway(shows, features=LLGUIDANCE, max_seq_len=4096) as running:
        answer = await running.chat(tools=[tool("f", inside)], tool_choice="required")
        assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("backend", BACKENDS)
def test_constants_are_held_against_patterns_in_linear_time(backend: GuideBackend | None) -> None:
    assert sent({"enum": ["ab", "cd", 5], "pattern": "b"}, backend) == {"enum": ["ab", 5]}
    assert sent({"enum": ["a" * 5000, "b"], "pattern": "^(a|a)*(a+)+$|b"}, backend)
    with pytest.raises(BadRequestError) as rejected:
        sent({"enum": ["a" * 5000], "pattern": "^(a+)+$b?c"}, backend)
    assert rejected.value.param == "schema.enum"


async def test_a_format_that_openai_does_not_take_is_named_and_served(folder: Path) -> None:
    own = {"type": "object", "properties": {"a": {"type": "string", "format": "path"}}, "required": ["a"]}
    async with gateway(folder, features=GUIDED) as running:
        strict = schema_format({**own, "additionalProperties": False}, strict=True)
        answer = await running.chat(response_format=strict)
        assert answer.headers["x-strict-schema-deviations"] == f"{PATH}.properties.a.format"


async def test_a_strict_function_of_alternatives_is_held_to_them(shows: Path) -> None:
    either = {
        "anyOf": [{"type": "object", "properties": {name: {"type": "null"}}, "required": [name]} for name in "ab"]
    }
    async with gateway(shows, features=GUIDED, max_seq_len=4096) as running:
        await whole(running, tools=[tool("f", either, strict=True)], tool_choice="required")
        guide = running.engine.requests[0].params.guide
        assert guide is not None
        arguments = json.loads(guide.text)["items"]["properties"]["arguments"]
        assert [part["required"] for part in arguments["anyOf"]] == [["a"], ["b"]]
        answer = await running.chat(tools=[tool("f", {"anyOf": [{}]}, strict=True)], tool_choice="required")
        assert answer.json()["error"]["param"] == "tools[0].function.parameters"


DAYS = ["2024-02-29", "2023-02-29", "1900-02-29", "2000-02-29", "2023-04-31", "2023-12-31", "2023-13-01", "0000-01-01"]
FORMS: list[tuple[str, list[str], list[str]]] = [
    ("time", ["23:59:59Z", "00:00:00.5+01:00"], ["24:00:00Z", "12:00", "23:59:60Z", "12:00:00"]),
    ("date-time", ["2024-02-29T00:00:00Z"], ["2023-02-29T00:00:00Z", "2024-02-29 00:00:00Z"]),
    ("duration", ["P1Y2M3D", "PT5M", "P3W"], ["P", "PT", "1D", "P1D2W"]),
    ("hostname", ["a", "a-b.example.com"], ["", "-a", "a-", "a..b", "a_b", "a.", "a" * 64, "a." * 127 + "abc"]),
    ("email", ["a.b@example.com"], ["a", "@b", "a b@c"]),
    ("ipv4", ["127.0.0.1"], ["256.0.0.1", "1.2.3", "01.2.3.4"]),
    ("ipv6", ["::1", "1::2:3"], ["1", ":::", "1::2::3", "12345::"]),
    ("uuid", ["00000000-0000-0000-0000-00000000000a"], ["0" * 32, "g" * 36]),
    ("uri", ["https://a.example/b?c#d", "urn:a:b"], ["/a", "a b", "http:// "]),
    ("uri-reference", ["/a", "../b", "https://a.example"], ["a b", "\\"]),
    ("json-pointer", ["", "/a/~0~1"], ["a", "/~2"]),
]


@pytest.mark.parametrize(("name", "good", "bad"), FORMS, ids=[name for name, _, _ in FORMS])
def test_formats_are_held_and_checked(name: str, good: list[str], bad: list[str]) -> None:
    pattern = sent({"type": "string", "format": name})["pattern"]
    fits = checker({"type": "string", "format": name}, "schema")
    for text in good:
        assert re.search(pattern, text), text
        assert fits(json.dumps(text)), text
    for text in bad:
        assert not re.search(pattern, text), text
        assert not fits(json.dumps(text)), text


def test_dates_are_those_of_the_calendar() -> None:
    fits = checker({"type": "string", "format": "date"}, "schema")
    for text in DAYS:
        try:
            there = bool(dt.date.fromisoformat(text))
        except ValueError:
            there = False
        assert fits(json.dumps(text)) == there, text


def test_what_a_guide_writes_of_a_format_passes_its_check() -> None:
    assert CHECKED.keys() <= STRING_FORMATS.keys()
    assert all(pattern_of(name) for name in STRING_FORMATS)
    assert pattern_of("x-own") is None


async def test_a_checked_answer_with_a_wrong_time_is_an_error(folder: Path) -> None:
    schema = {"type": "object", "properties": {"at": {"type": "string", "format": "time"}}}
    for text, status in (('{"at": "12:00:00Z"}', 200), ('{"at": "25:00:00Z"}', 500)):
        async with gateway(folder, says(folder, text), features=UNGUIDED, **VALIDATE) as running:
            answer = await running.chat(response_format=schema_format(schema), max_tokens=200)
            assert answer.status_code == status, answer.text
            streamed = await running.chat(response_format=schema_format(schema), max_tokens=200, stream=True)
            assert ("invalid_model_output" in streamed.text) == (status == 500)


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "link",
    [
        lambda to: {"type": "object", "properties": {"n": to}},
        lambda to: {"allOf": [to, {"properties": {"p": {}}}]},
        lambda to: {"anyOf": [to, to]},
        lambda to: {"enum": [{}], "anyOf": [to, to]},
        lambda to: to,
    ],
)
def test_long_chains_of_references_end_in_an_answer(link: Any, backend: GuideBackend | None, exact: bool) -> None:
    chain = {f"a{index}": link({"$ref": f"#/$defs/a{index + 1}"}) for index in range(600)}
    schema = {"$ref": "#/$defs/a0", "$defs": {**chain, "a600": {"type": "object"}}}
    try:
        assert sent(schema, backend, exact=exact)
    except BadRequestError as error:
        assert error.code == "unsupported_json_schema"  # noqa: PT017


def test_the_document_has_the_table() -> None:
    text = (Path(__file__).parents[2] / "docs" / "reference" / "tools.md").read_text(encoding="utf-8")
    assert document() in text


async def test_calls_beside_a_schema_of_objects(shows: Path) -> None:
    both = {"allOf": [{"properties": {"a": {"type": "null"}}}, {"properties": {"b": {"type": "null"}}}]}
    async with gateway(shows, says(shows, "{}"), features=LLGUIDANCE, max_seq_len=4096) as running:
        await whole(running, tools=TOOLS, response_format=schema_format(both))


async def test_a_guide_has_the_well_formed_properties_of_an_ill_formed_schema(shows: Path) -> None:
    parameters = {"type": "object", "properties": {"city": GOOD, "days": BAD}}
    async with gateway(shows, says(shows, "{}"), features=GUIDED, max_seq_len=4096) as running:
        answer = await running.chat(tools=[tool("weather", parameters)], response_format=schema_format(OPEN))
        assert answer.headers["x-ignored-parameters"] == "tools[0].function.parameters"
        (request,) = running.engine.requests
        assert request.params.guide is not None
        guide = request.params.guide.text
    assert '"city"' in guide
    assert '"days"' not in guide


def readable(schema: dict[str, Any]) -> dict[str, Any]:
    with pytest.raises(BadRequestError) as caught:
        check_schema(schema, "schema")
    return readable_part(schema, caught.value)


@pytest.mark.parametrize(
    ("schema", "kept", "definitions"),
    [
        ({"properties": {"a": GOOD, "b": BAD, "c": True, "d": 3}}, "ac", None),
        ({"properties": {"a": GOOD, "b": {"$ref": "#/$defs/good"}}, "$defs": {"bad": BAD, "good": GOOD}}, "ab", "good"),
        ({"properties": {"a": {"$ref": "#/$defs/x"}, "b": {"$ref": "#/$defs/y"}}, "$defs": {
            "x": {"items": {"$ref": "#/$defs/bad"}}, "y": {"items": {"$ref": "#/$defs/y"}}, "bad": BAD}}, "b", "y"),
        ({"properties": {"a": {"$ref": "#/$defs/x"}, "b": {"$ref": "#/$defs/x"}, "c": GOOD}, "$defs": {
            "x": {"$ref": "#/$defs/y"}, "y": {"$ref": "#/$defs/x"}}}, "c", ""),
        ({"properties": {"a": {"$ref": "#/$defs/x/items"}, "b": GOOD}, "$defs": {"x": {"items": GOOD, **BAD}}},
         "b", ""),
        ({"properties": {"a": GOOD, "b": {"items": {"$ref": "#"}}, "c": {"$ref": "#/properties/a"}}, "required": None},
         "ab", None),
        ({"properties": {"a": {"enum": list(range(2000))}, "b": {"enum": [1]}}, "required": None}, "b", None),
        ({"properties": {"a": GOOD, "b": {"$ref": "#/$defs/x"}}, "$defs": 5}, "a", None),
        ({"properties": 5, "$defs": {"x": GOOD}}, "", "x"),
    ],
)  # fmt: skip
def test_the_well_formed_part_of_a_schema_is_readable(schema: Any, kept: str, definitions: str | None) -> None:
    found = readable({"type": "object", **schema})
    check_schema(found, "schema")
    assert "".join(found["properties"]) == kept
    assert found.get("$defs", {}).keys() == ({definitions} if definitions else set())


def reference(name: object) -> dict[str, str]:
    return {"$ref": f"#/$defs/{name}"}


@pytest.mark.parametrize(
    "definitions",
    [
        {0: {"properties": {f"p{number}": GOOD for number in range(1500)} | {"bad": BAD}}},
        {number: reference(number + 1) for number in range(1500)},
        {number: {"items": reference(number + 1)} for number in range(1500)},
    ],
    ids=["a large one", "a chain", "a list"],
)
def test_a_definition_that_all_properties_use_is_checked_once(definitions: dict[Any, Any]) -> None:
    definitions = {str(name): part for name, part in definitions.items()}
    properties = {f"p{number}": reference(0) for number in range(1500)}
    whole = {"type": "object", "properties": properties, "$defs": {**definitions, "1500": GOOD, "0": GOOD}}

    def seconds(work: Any, *given: Any) -> float:
        began = time.process_time()
        work(*given)
        return time.process_time() - began

    once = min(seconds(check_schema, {**whole, "title": str(number)}, "schema") for number in range(3))
    assert readable({**whole, "$defs": definitions})["properties"] == {}
    assert seconds(readable, {**whole, "$defs": definitions}) < 30 * once
