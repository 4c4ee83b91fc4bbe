"""Bodies of many small things are refused by name; their work has an end and does not hold up the event loop."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from gateway.openai.chat.protocol import ChatCompletionRequest
from gateway.openai.completions.protocol import CompletionRequest
from gateway.serving.ask import ChatPrompt
from gateway.serving.prompts import is_long
from tests.app.harness import USER, gateway
from tests.app.scripted import MODEL

LETTER = {"role": "user", "content": "a"}
MANY = 20_000


@pytest.mark.parametrize(
    ("count", "says", "param", "code"),
    [
        (16_384, "maximum context length", "messages", "context_length_exceeded"),
        (16_385, "'messages': it may have at most 16384 items", "messages", "array_above_max_length"),
        (100_000, "its objects, messages among them, have more than 65536 fields", None, None),
    ],
)
async def test_more_messages_than_any_context_has_room_for(
    folder: Path, count: int, says: str, param: str | None, code: str | None
) -> None:
    async with gateway(folder) as running:
        answer = await running.chat(messages=[LETTER] * count)
        error = answer.json()["error"]
        assert (answer.status_code, error["param"], error["code"]) == (400, param, code)
        assert says in error["message"]
        assert (await running.chat()).status_code == 200


@pytest.mark.parametrize(
    ("request_type", "fields"),
    [
        (ChatCompletionRequest, {"messages": [1] * MANY}),
        (ChatCompletionRequest, {"messages": [{"role": "user", "content": [1] * MANY}]}),
        (ChatCompletionRequest, {"messages": [{"role": "assistant", "content": [1] * MANY}]}),
        (ChatCompletionRequest, {"messages": [{"role": "assistant", "tool_calls": [1] * MANY}]}),
        (ChatCompletionRequest, {"messages": USER, "documents": [1] * MANY}),
        (CompletionRequest, {"prompt": [1, *["a"] * MANY]}),
        (CompletionRequest, {"prompt": [[1], *[["a"] * 20] * 2000]}),
        (CompletionRequest, {"prompt": ["a", *[1] * 2000]}),
    ],
)
def test_the_first_mistake_is_the_only_one_that_is_looked_for(
    request_type: type[BaseModel], fields: dict[str, Any]
) -> None:
    with pytest.raises(ValidationError) as caught:
        request_type.model_validate({"model": MODEL, **fields})
    assert caught.value.error_count() == 1


@pytest.mark.parametrize(
    ("messages", "long"),
    [
        ([LETTER] * 10, False),
        ([{"role": "user", "content": ""}] * 1000, True),
        ([{"role": "user", "content": "a" * 5000}], True),
        ([{"role": "assistant", "content": "", "reasoning": "a" * 5000}], True),
        ([{"role": "assistant", "content": "", "tool_calls": [{"function": {"arguments": ""}}] * 1000}], True),
    ],
)
def test_a_prompt_of_many_messages_is_built_off_the_event_loop(messages: list[dict[str, Any]], long: bool) -> None:
    assert is_long(ChatPrompt(messages)) == long


async def test_a_schema_tells_of_the_bound(folder: Path) -> None:
    async with gateway(folder) as running:
        schema = (await running.client.get("/openapi.json")).json()
    assert json.dumps(schema["components"]["schemas"]["ChatCompletionRequest"]["properties"]["messages"]).count("16384")
