"""Large bodies, and those of many small things: refused by name, with work that has an end off the event loop."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from gateway.api.openai import request_body
from gateway.api.openai.chat.protocol import ChatCompletionRequest
from gateway.api.openai.completions.protocol import CompletionRequest
from gateway.api.openai.tokens.protocol import TokenizeRequest
from gateway.serving.long_work import LARGE_PROMPTS, PROMPTS, LongWork
from gateway.serving.prompts import ChatPrompt, long_work
from tests.app.harness import USER, gateway, rejected
from tests.app.scripted import MODEL

PADDING = "x" * 300_000


async def test_a_text_that_no_context_holds_is_refused_by_name(folder: Path) -> None:
    async with gateway(folder) as running:
        answer = await running.client.post("/tokenize", json={"prompt": "a" * (2**23 + 1)})
        rejected(answer, 400, "prompt", "string_above_max_length")


async def test_large_bodies_that_come_together_have_a_bound_in_all(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = request_body.BodyBudget(limit=500_000)
    monkeypatch.setattr(request_body, "_bodies", held)
    whole = json.dumps({"model": MODEL, "prompt": PADDING}).encode()
    first_half_came, go_on = asyncio.Event(), asyncio.Event()

    async def slow_body() -> AsyncIterator[bytes]:
        yield whole[:-1]
        first_half_came.set()
        await go_on.wait()
        yield whole[-1:]

    async with gateway(folder, served=True) as running:
        headers = {"Content-Type": "application/json"}
        slow = asyncio.create_task(running.client.post("/tokenize", content=slow_body(), headers=headers))
        await first_half_came.wait()
        while held.held < len(whole) - 1:  # noqa: ASYNC110 - until the server has read what was sent
            await asyncio.sleep(0)
        rejected = await running.client.post("/tokenize", content=whole, headers=headers)
        assert (rejected.status_code, rejected.json()["error"]["code"]) == (503, "service_unavailable")
        assert rejected.headers["Retry-After"] == "1"
        small = await running.client.post("/tokenize", json={"model": MODEL, "prompt": "Hi"})
        assert small.status_code == 200
        go_on.set()
        assert (await slow).status_code == 400  # it was read: the context is too short for it
        assert held.held == 0
        again = await running.client.post("/tokenize", content=whole, headers=headers)
        assert again.status_code == 400


LETTER = {"role": "user", "content": "a"}
MANY = 20_000


@pytest.mark.parametrize(
    ("count", "says", "param", "code"),
    [
        (4_096, "maximum context length", "messages", "context_length_exceeded"),
        (4_097, "'messages': must have at most 4096 items", "messages", "array_above_max_length"),
        (100_000, "it has more than 65536 objects, arrays and keys", None, None),
    ],
)
async def test_more_messages_than_any_context_has_room_for(
    folder: Path, count: int, says: str, param: str | None, code: str | None
) -> None:
    async with gateway(folder) as running:
        answer = await running.chat(messages=[LETTER] * count)
        error = rejected(answer, 400, param, code)
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
    ("messages", "work"),
    [
        ([LETTER] * 10, None),
        ([{"role": "user", "content": ""}] * 1000, PROMPTS),
        ([{"role": "user", "content": "a" * 5000}], PROMPTS),
        ([{"role": "assistant", "content": "", "reasoning": "a" * 5000}], PROMPTS),
        ([{"role": "assistant", "content": "", "tool_calls": [{"function": {"arguments": ""}}] * 1000}], PROMPTS),
        ([{"role": "user", "content": ""}] * 5000, LARGE_PROMPTS),
        ([{"role": "user", "content": "a" * 70_000}], LARGE_PROMPTS),
    ],
)
def test_a_prompt_of_many_messages_is_built_off_the_event_loop(
    messages: list[dict[str, Any]], work: LongWork | None
) -> None:
    assert long_work(ChatPrompt(messages)) is work


@pytest.mark.parametrize("name", ["tools", "documents", "variables"])
@pytest.mark.parametrize(
    ("value", "work"),
    [
        ({"a": "b", "c": [1, None, True, {"d": "e"}]}, None),
        ({"a": "b" * 5000}, PROMPTS),
        ({"b" * 5000: 1}, PROMPTS),
        ({"a": [[]] * 2000}, PROMPTS),
        ({"a": "b" * 70_000}, LARGE_PROMPTS),
        ({"a": [1] * 70_000}, LARGE_PROMPTS),
        ({"a": [10**2000] * 3}, PROMPTS),
        ({"a": [10**4000] * 20}, LARGE_PROMPTS),
    ],
)
def test_what_stands_beside_messages_counts_by_its_size(
    name: str, value: dict[str, Any], work: LongWork | None
) -> None:
    assert long_work(ChatPrompt([LETTER], **{name: value if name == "variables" else [value]})) is work


PART = {"type": "text", "text": "a"}
CALL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        ("/v1/completions", {"prompt": [[1]] * 2049}, "prompt"),
        ("/v1/completions", {"prompt": ["a"] * 2049}, "prompt"),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": [PART] * 2049}]}, "messages[0].content"),
        ("/tokenize", {"messages": [LETTER, {"role": "user", "content": [PART] * 2049}]}, "messages[1].content"),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": [PART] * 2000}] * 9}, "messages"),
        ("/v1/chat/completions", {"messages": [{"role": "assistant", "tool_calls": [CALL] * 1025}]},
         "messages[0].tool_calls"),
        ("/v1/chat/completions", {"messages": USER, "prediction": {"type": "content", "content": [PART] * 2049}},
         "prediction.content"),
    ],
)  # fmt: skip
async def test_long_arrays_are_refused_before_anything_is_made_of_their_items(
    folder: Path, monkeypatch: pytest.MonkeyPatch, path: str, fields: dict[str, Any], param: str
) -> None:
    for request_type in (ChatCompletionRequest, CompletionRequest, TokenizeRequest):
        monkeypatch.setattr(request_type, "model_validate", None)
    async with gateway(folder) as running:
        answer = await running.client.post(path, json={"model": MODEL, **fields})
        rejected(answer, 400, param, "array_above_max_length")


@pytest.mark.parametrize("place", [0, 255, 256, 999])
async def test_a_wrong_one_of_many_messages_is_named(folder: Path, place: int) -> None:
    messages: list[Any] = [LETTER] * 1000
    async with gateway(folder, max_seq_len=100_000) as running:
        for path in ("/v1/chat/completions", "/tokenize"):
            assert (await running.client.post(path, json={"model": MODEL, "messages": messages})).status_code == 200
            wrong = [*messages[:place], {"role": "user", "content": 1}, *messages[place + 1 :]]
            error = (await running.client.post(path, json={"model": MODEL, "messages": wrong})).json()["error"]
            assert error["param"] == f"messages[{place}].content"


@pytest.mark.parametrize("place", [0, 16383, 16384, 40_000])
@pytest.mark.parametrize(("wrong", "code"), [("a", "invalid_type"), (-1, "integer_below_min_value")])
async def test_a_wrong_one_of_many_ids_is_named(folder: Path, place: int, wrong: Any, code: str) -> None:
    ids: list[Any] = [65] * 50_000
    async with gateway(folder, max_seq_len=100_000) as running:
        for path, field, name in (
            ("/v1/completions", "prompt", "prompt"),
            ("/v1/completions", "prompt", "prompt[1]"),
            ("/detokenize", "tokens", "tokens"),
        ):
            value = [*ids[:place], wrong, *ids[place + 1 :]] if place else [65, wrong]
            nested = [[65], value] if name == "prompt[1]" else value
            error = (await running.client.post(path, json={"model": MODEL, field: nested})).json()["error"]
            assert (error["param"], error["code"]) == (f"{name}[{place or 1}]", code)
