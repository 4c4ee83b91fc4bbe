"""Structured output through the SDK and LangChain: every answer is of the form that was asked for."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from langchain_openai import ChatOpenAI
from openai import OpenAI
from pydantic import BaseModel

from tests.clients.conftest import MODEL, TINY
from tests.clients.structured_schemas import SCHEMAS, Person
from tests.stack import GatewayProcess

QUESTION = "Make up an example."
MESSAGES: list[Any] = [{"role": "user", "content": QUESTION}]
EACH = 3  # answers by each schema in the long run


@pytest.fixture
def tiny(tiny_gateway: GatewayProcess) -> Iterator[OpenAI]:
    with OpenAI(
        base_url=f"{tiny_gateway.url}/v1", api_key="unused", max_retries=0, timeout=60, _strict_response_validation=True
    ) as sdk:
        yield sdk


def chat(gateway: GatewayProcess, model: str, **more: Any) -> ChatOpenAI:
    return ChatOpenAI(
        model=model, base_url=f"{gateway.url}/v1", api_key="unused", max_retries=0, max_completion_tokens=600, **more
    )


@pytest.mark.parametrize("schema", SCHEMAS)
def test_the_sdk_parses(tiny: OpenAI, schema: type[BaseModel]) -> None:
    answer = tiny.chat.completions.parse(
        model=TINY, messages=MESSAGES, response_format=schema, max_tokens=600, seed=1, temperature=1.5
    )
    assert isinstance(answer.choices[0].message.parsed, schema)
    assert answer.choices[0].finish_reason == "stop"


def test_the_sdk_parses_a_stream(tiny: OpenAI) -> None:
    with tiny.chat.completions.stream(
        model=TINY, messages=MESSAGES, response_format=Person, max_tokens=600, seed=2
    ) as stream:
        content = "".join(event.delta for event in stream if event.type == "content.delta")
        message = stream.get_final_completion().choices[0].message
    assert isinstance(message.parsed, Person)
    assert Person.model_validate_json(content) == message.parsed


def test_a_cut_answer_is_no_parsed_one(tiny: OpenAI) -> None:
    with pytest.raises(openai.LengthFinishReasonError):
        tiny.chat.completions.parse(model=TINY, messages=MESSAGES, response_format=Person, max_tokens=3)


def test_json_mode(tiny: OpenAI) -> None:
    ended = 0
    for seed in range(8):
        asked: dict[str, Any] = {"model": TINY, "messages": MESSAGES, "seed": seed, "max_tokens": 300}
        choice = tiny.chat.completions.create(response_format={"type": "json_object"}, **asked).choices[0]
        assert (choice.message.content or "").lstrip().startswith("{")
        if choice.finish_reason == "stop":
            assert isinstance(json.loads(choice.message.content or ""), dict)
            ended += 1
    assert ended


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_langchain(tiny_gateway: GatewayProcess, method: Any) -> None:
    for place, schema in enumerate(SCHEMAS):
        llm = chat(tiny_gateway, TINY, seed=place, temperature=1.5)
        assert isinstance(llm.with_structured_output(schema, method=method).invoke(QUESTION), schema)


def test_json_mode_of_langchain(tiny_gateway: GatewayProcess) -> None:
    llm = chat(tiny_gateway, TINY, seed=1, temperature=1.5)
    message = llm.bind(response_format={"type": "json_object"}).invoke(QUESTION)
    ended = message.response_metadata["finish_reason"] == "stop"
    assert message.text.startswith("{")
    assert not ended or isinstance(json.loads(message.text), dict)
    parsed = llm.with_structured_output(method="json_mode").invoke(QUESTION)
    assert isinstance(parsed, dict)


@pytest.mark.parametrize(
    ("form", "pattern"),
    [
        ({"structured_outputs": {"regex": "[a-f]{3}-(é|ü)"}}, "[a-f]{3}-(é|ü)"),
        ({"structured_outputs": {"choice": ["ja", "nein.", "(?)"]}}, r"ja|nein\.|\(\?\)"),
        ({"structured_outputs": {"grammar": 'root ::= "<" [0-9]{2} ">"'}}, "<[0-9]{2}>"),
        ({"guided_regex": "x{5}"}, "x{5}"),
    ],
)
def test_extensions_of_both_endpoints(tiny_gateway: GatewayProcess, form: dict[str, Any], pattern: str) -> None:
    for path, prompt in (("chat/completions", {"messages": MESSAGES}), ("completions", {"prompt": QUESTION})):
        body = {"model": TINY, **prompt, "max_tokens": 100, "temperature": 1.5, **form}
        answer = httpx.post(f"{tiny_gateway.url}/v1/{path}", json=body, timeout=60)
        assert answer.status_code == 200, answer.text
        choice = answer.json()["choices"][0]
        said = choice["message"]["content"] if "message" in choice else choice["text"]
        assert re.fullmatch(pattern, said)


def test_a_structural_tag(tiny_gateway: GatewayProcess) -> None:
    tag = {"type": "tag", "begin": "<n>", "content": {"type": "regex", "pattern": "[0-9]{3}"}, "end": "</n>"}
    body = {"model": TINY, "messages": MESSAGES, "response_format": {"type": "structural_tag", "format": tag}}
    answer = httpx.post(f"{tiny_gateway.url}/v1/chat/completions", json=body | {"max_tokens": 50}, timeout=60)
    assert re.fullmatch("<n>[0-9]{3}</n>", answer.json()["choices"][0]["message"]["content"])


def test_what_the_engine_refuses_is_the_client_s_error(tiny_gateway: GatewayProcess) -> None:
    wrong = {"model": TINY, "structured_outputs": {"grammar": "root ::= ("}}
    for path, prompt in (("chat/completions", {"messages": MESSAGES}), ("completions", {"prompt": QUESTION})):
        for stream in (False, True):
            body = {**wrong, **prompt, "stream": stream}
            answer = httpx.post(f"{tiny_gateway.url}/v1/{path}", json=body, timeout=60)
            assert answer.status_code == 400
            error = answer.json()["error"]
            assert (error["type"], error["param"]) == ("invalid_request_error", "structured_outputs.grammar")
    # An anchor inside of an expression is ECMA's, and nothing that llguidance has.
    for part, strict, param in (
        ({"type": "string", "pattern": "a^b"}, False, "tools"),
        ({"type": "integer", "minimum": 10**30}, True, "tools[0].function.parameters.properties.a.minimum"),
    ):
        parameters = {"type": "object", "properties": {"a": part}, "required": ["a"]}
        function = {"name": "f", "parameters": parameters, "strict": strict}
        body = {"model": TINY, "messages": MESSAGES, "tool_choice": "required",
                "tools": [{"type": "function", "function": function}]}  # fmt: skip
        answer = httpx.post(f"{tiny_gateway.url}/v1/chat/completions", json=body, timeout=60)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


@pytest.mark.long
@pytest.mark.parametrize("gateway", ["tokens"], indirect=True)  # what is said does not depend on the path
@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_each_answer_fits_its_schema(gateway: GatewayProcess, method: Any) -> None:
    for schema in SCHEMAS:
        for seed in range(EACH):
            llm = chat(gateway, MODEL, seed=seed, temperature=1.0)
            assert isinstance(llm.with_structured_output(schema, method=method).invoke(QUESTION), schema)


@pytest.mark.long
@pytest.mark.parametrize("gateway", ["tokens"], indirect=True)  # what is said does not depend on the path
def test_json_mode_of_a_real_model(client: OpenAI) -> None:
    asked: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "Describe Rome in JSON."}]}
    answer = client.chat.completions.create(
        response_format={"type": "json_object"}, n=4, seed=1, max_tokens=200, **asked
    )
    for choice in answer.choices:
        assert choice.finish_reason == "length" or isinstance(json.loads(choice.message.content or ""), dict)
