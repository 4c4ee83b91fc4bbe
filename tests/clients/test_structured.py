"""Structured output through the SDK: every answer is of the form that was asked for."""

from __future__ import annotations

import re
from enum import Enum
from typing import Annotated, Any, Literal

import httpx
import pytest
from openai import OpenAI
from pydantic import BaseModel, Field

from tests.clients.conftest import TINY
from tests.stack import GatewayProcess

QUESTION = "Make up an example."
MESSAGES: list[Any] = [{"role": "user", "content": QUESTION}]
Short = Annotated[str, Field(max_length=8)]
Few = Field(min_length=1, max_length=3)


class Colour(str, Enum):
    RED = "red"
    GREEN = "grün"
    BLUE = "синий"


class Address(BaseModel):
    """A postal address."""

    street: Short
    colours: Annotated[list[Colour], Few]


class Person(BaseModel):
    name: Short
    age: Annotated[int, Field(ge=0, le=120)] | None
    address: Address
    lead: Short | None = None


class Measure(BaseModel):
    kind: Literal["measure"]
    value: Annotated[float, Field(ge=-100, le=100)]
    unit: Literal["°C", "µm", "€"]


class Matrix(BaseModel):
    kind: Literal["matrix"]
    rows: Annotated[list[Annotated[list[Annotated[int, Field(ge=0, le=9)]], Few]], Few]


class Either(BaseModel):
    either: Measure | Matrix


# Further schemas are walked through by tests/integration/test_schemas_by_llguidance.py.
@pytest.mark.parametrize("schema", [Person, Either])
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
