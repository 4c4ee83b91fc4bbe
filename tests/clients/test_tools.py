"""Demanded tool calls, held by guidance: always a valid one, and not always the same.

What the model is does not matter to most of it: the tiny one, whose words mean nothing, is held as well as any other.
"""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from openai import OpenAI

from tests.clients.conftest import MODEL, TINY

MESSAGES: list[Any] = [
    {"role": "user", "content": "What is the weather in Paris, what time is it there, who lives there?"}
]
SCHEMAS: dict[str, Any] = {
    "get_weather": {
        "type": "object",
        "properties": {
            "city": {"type": "string", "maxLength": 12},
            "unit": {"enum": ["C", "F"]},
        },
        "required": ["city", "unit"],
        "additionalProperties": False,
    },
    "get_time": {
        "type": "object",
        "properties": {"zone": {"type": "string", "maxLength": 8}, "utc": {"type": "boolean"}},
        "required": ["zone"],
    },
    "find_people": {
        "type": "object",
        "properties": {
            "names": {"type": "array", "items": {"type": "string", "maxLength": 8}, "minItems": 1, "maxItems": 2},
            "age": {"anyOf": [{"type": "integer", "minimum": 0, "maximum": 120}, {"type": "null"}]},
        },
        "required": ["names", "age"],
    },
}
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": name, "parameters": schema}} for name, schema in SCHEMAS.items()
]


def check(name: str, arguments: str) -> None:
    jsonschema.validate(json.loads(arguments), SCHEMAS[name])


def required(client: OpenAI, model: str, **more: Any) -> set[str]:
    """Names of the tools that were called, of which each answer must have one validly."""
    asked: dict[str, Any] = {"model": model, "messages": MESSAGES, "tools": TOOLS, "tool_choice": "required", **more}
    names = set()
    for choice in client.chat.completions.create(parallel_tool_calls=False, **asked).choices:
        assert choice.finish_reason == "tool_calls"
        assert choice.message.content is None
        (call,) = choice.message.tool_calls or []
        assert call.type == "function"
        check(call.function.name, call.function.arguments)
        names.add(call.function.name)
    return names


def test_required_calls_one_of_the_tools_and_not_always_the_same(tiny: OpenAI) -> None:
    names = required(tiny, TINY, n=8, seed=1, temperature=2, max_tokens=400)
    assert len(names) > 1, names


@pytest.mark.parametrize("name", SCHEMAS)
def test_named_calls_that_one(tiny: OpenAI, name: str) -> None:
    choice: Any = {"type": "function", "function": {"name": name}}
    asked: dict[str, Any] = {
        "model": TINY, "messages": MESSAGES, "tools": TOOLS, "tool_choice": choice, "seed": 3, "max_tokens": 400,
    }  # fmt: skip
    for other in tiny.chat.completions.create(n=4, temperature=2, **asked).choices:
        assert len(other.message.tool_calls or []) == 1  # not one after the other until the limit
        assert other.finish_reason == "stop"
    whole = tiny.chat.completions.create(**asked).choices[0]
    assert whole.finish_reason == "stop"  # as OpenAI has it where a function is named
    (call,) = whole.message.tool_calls or []
    assert call.type == "function"
    assert call.function.name == name
    check(name, call.function.arguments)
    with tiny.chat.completions.stream(**asked) as stream:
        deltas = [event for event in stream if event.type == "tool_calls.function.arguments.delta"]
        streamed = stream.get_final_completion().choices[0].message
    (same,) = streamed.tool_calls or []
    assert (same.function.name, same.function.arguments) == (name, call.function.arguments)
    assert "".join(delta.arguments_delta for delta in deltas) == call.function.arguments
    assert len(deltas) > 3


def test_several_calls_in_one_answer(tiny: OpenAI) -> None:
    asked: dict[str, Any] = {"messages": MESSAGES, "tools": TOOLS, "tool_choice": "required", "max_tokens": 400}
    numbers = set()
    for choice in tiny.chat.completions.create(model=TINY, n=16, seed=5, temperature=2, **asked).choices:
        calls = choice.message.tool_calls or []
        numbers.add(len(calls))
        for call in calls[:-1] if choice.finish_reason == "length" else calls:
            assert call.type == "function"
            check(call.function.name, call.function.arguments)
    assert max(numbers) > 1


CITY: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


@pytest.mark.long
@pytest.mark.parametrize("gateway", ["tokens"], indirect=True)
def test_the_embedded_model_calls_a_tool_by_itself_and_tells_its_result(client: OpenAI) -> None:
    question: Any = {"role": "user", "content": "What is the weather in Paris?"}
    asked: dict[str, Any] = {"model": MODEL, "tools": [CITY], "temperature": 0, "max_tokens": 60}
    whole = client.chat.completions.create(messages=[question], **asked).choices[0]
    assert (whole.finish_reason, whole.message.content) == ("tool_calls", None)
    (call,) = whole.message.tool_calls or []
    assert call.type == "function"
    assert (call.function.name, json.loads(call.function.arguments)) == ("get_weather", {"city": "Paris"})
    with client.chat.completions.stream(messages=[question], tool_choice="auto", **asked) as stream:
        streamed = stream.get_final_completion().choices[0]
    (same,) = streamed.message.tool_calls or []
    assert streamed.finish_reason == "tool_calls"
    assert (same.function.name, same.function.arguments) == (call.function.name, call.function.arguments)
    turn: Any = [whole.message, {"role": "tool", "tool_call_id": call.id, "content": "18 degrees and rain"}]
    told = client.chat.completions.create(messages=[question, *turn], **asked).choices[0]
    assert (told.finish_reason, told.message.content) == ("stop", "The answer is 18 degrees and rain.")


def test_the_embedded_model_answers_small_talk_beside_a_tool(client: OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "Hello!"}], tools=[CITY], temperature=0, max_tokens=30
    ).choices[0]  # fmt: skip
    assert (answer.finish_reason, answer.message.tool_calls) == ("stop", None)
    assert answer.message.content
