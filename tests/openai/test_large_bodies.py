"""Large bodies, long prompts and many small things: refused by name, with work that has an end off the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from gateway.api.openai import request_body
from gateway.api.openai.chat.protocol import ChatCompletionRequest
from gateway.api.openai.completions.protocol import CompletionRequest
from gateway.api.openai.tokens.protocol import TokenizeRequest
from gateway.serving.long_work import BODIES, LARGE_PROMPTS, PROMPTS, LongWork
from gateway.serving.prompts import ChatPrompt, long_work
from gateway.text.tokens import Tokenizer
from tests.app.harness import USER, gateway, rejected
from tests.app.scripted import MAX_SEQ_LEN, MODEL
from tests.waiting import until

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


MOST = 131_072  # tokens, where the context is shorter


@pytest.mark.parametrize(
    ("path", "body", "param", "code"),
    [
        ("/tokenize", {"prompt": "a" * (2 * MOST)}, "prompt", "context_length_exceeded"),
        ("/tokenize", {"prompt": "é" * MOST}, "prompt", "context_length_exceeded"),
        ("/tokenize", {"messages": [{"role": "user", "content": "a" * (3 * MOST)}]}, "messages",
         "context_length_exceeded"),
        ("/detokenize", {"tokens": [1] * (MOST + 1)}, "tokens", "array_above_max_length"),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a" * 300_000}]}, "messages",
         "context_length_exceeded"),
        ("/v1/chat/completions/render", {"messages": [{"role": "user", "content": "a" * 5_000}]}, "messages",
         "context_length_exceeded"),
        ("/v1/completions", {"prompt": "a" * 300_000}, "prompt", "context_length_exceeded"),
        ("/v1/completions", {"prompt": [1] * 1000}, "prompt", "context_length_exceeded"),
        ("/v1/completions", {"prompt": ["a" * 250] * 2048 + ["a"]}, "prompt", "array_above_max_length"),
    ],
)  # fmt: skip
async def test_what_is_too_long_by_far_is_refused_by_name(
    folder: Path, path: str, body: dict[str, Any], param: str, code: str
) -> None:
    async with gateway(folder) as running:
        answer = await running.client.post(path, json={"model": MODEL, **body})
        assert (answer.status_code, answer.json()["error"]["param"], answer.json()["error"]["code"]) == (
            400, param, code,
        )  # fmt: skip
        assert not running.engine.requests


@pytest.mark.parametrize(
    ("path", "body", "most"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a" * 70_000}]}, 20_000),
        ("/v1/completions", {"prompt": "a" * 70_000}, 20_000),
        ("/v1/completions", {"prompt": "é" * 30_000}, 40_000),  # a character may be as many tokens as it has bytes
        ("/v1/completions", {"prompt": "😀" * 12_000}, 40_000),
    ],
    ids=["chat", "completion", "two bytes", "four bytes"],
)
async def test_too_many_tokens_are_not_counted_to_the_last(
    folder: Path, path: str, body: dict[str, Any], most: int
) -> None:
    async with gateway(folder, max_seq_len=most) as running:
        message = (await running.client.post(path, json={"model": MODEL, **body})).json()["error"]["message"]
        more = f"it has more than {most * 9 // 8} tokens"
        assert f"length is {most} tokens, but the prompt is too long: {more}" in message
        nearly = {"model": MODEL, "prompt": "a" * (most + 2000)}
        message = (await running.client.post("/v1/completions", json=nearly)).json()["error"]["message"]
        assert f"prompt is too long: {most + 2000} tokens > {most - 1}" in message  # so near, the count is exact


async def test_prompts_that_are_too_many_tokens_together(folder: Path) -> None:
    async with gateway(folder, max_seq_len=4096) as running:
        prompts = ["a" * 4000] * 263
        answer = await running.client.post("/v1/completions", json={"model": MODEL, "max_tokens": 1, "prompt": prompts})
        error = rejected(answer, 400, "prompt", "array_above_max_length")
        assert "1048576" in error["message"]
        assert not running.engine.requests


async def test_longer_than_the_context_can_still_be_counted(folder: Path) -> None:
    """Who cuts documents counts them first."""
    async with gateway(folder) as running:
        text = "a" * (MAX_SEQ_LEN * 50)
        assert (await running.client.post("/tokenize", json={"prompt": text})).json()["count"] == len(text)
        ids = [65] * (MAX_SEQ_LEN * 50)
        answer = await running.client.post("/detokenize", json={"tokens": ids})
        assert len(answer.json()["prompt"]) == len(ids)


def test_counting_in_pieces_stops_with_the_piece_that_is_too_much(folder: Path) -> None:
    tokenizer = Tokenizer.from_folder(folder)
    text = "a" * 1_000_000
    assert tokenizer.count_beyond(text, 10**9) == len(tokenizer.encode(text))
    asked: list[int] = []
    assert 1000 < tokenizer.count_beyond(text, 1000, lambda: bool(asked.append(1))) < 100_000
    assert len(asked) == 1
    assert tokenizer.count_beyond(text, 10**9, lambda: True) == 0


@contextlib.asynccontextmanager
async def occupied(work: LongWork, threads: int = 1) -> AsyncIterator[None]:
    """All threads for such work are busy meanwhile."""
    go = threading.Event()
    held = [asyncio.create_task(work.run(lambda _: go.wait(20))) for _ in range(threads)]
    try:
        await until(lambda: work.count == threads)
        yield
    finally:
        go.set()
        await asyncio.gather(*held)


async def test_small_requests_do_not_wait_for_long_ones(folder: Path) -> None:
    async with gateway(folder, max_seq_len=4096) as running:
        async with occupied(LARGE_PROMPTS):
            long = asyncio.create_task(running.client.post("/tokenize", json={"prompt": "a" * 100_000}))
            await until(lambda: LARGE_PROMPTS.count == 2)
            middle = await running.client.post("/tokenize", json={"prompt": "a" * 60_000})
            assert middle.json()["count"] == 60_000
            async with occupied(PROMPTS, 2):
                tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
                small = {"messages": USER, "tools": [tool], "chat_template_kwargs": {"a": 1}}
                assert (await running.client.post("/tokenize", json=small)).status_code == 200
                assert not long.done()
        assert (await long).json()["count"] == 100_000


@pytest.mark.parametrize(("words", "work", "threads"), [(500, PROMPTS, 2), (6_000, LARGE_PROMPTS, 1)])
async def test_a_conversation_that_goes_on_does_not_wait_for_long_ones(
    folder: Path, words: int, work: LongWork, threads: int
) -> None:
    said = [{"role": role, "content": f"{role} says {'a word; ' * words}"} for role in ("user", "assistant")]
    async with gateway(folder, max_seq_len=131_072) as running:
        path = "/v1/chat/completions"
        await running.client.post(path, json={"model": MODEL, "max_tokens": 1, "messages": said})
        async with occupied(work, threads), occupied(BODIES):
            for more in ("And?", "And then?"):
                said = [*said, {"role": "user", "content": more}]
                answer = await running.client.post(path, json={"model": MODEL, "max_tokens": 1, "messages": said})
                assert answer.json()["usage"]["prompt_tokens"] > 16 * words
            other = [{"role": "user", "content": "b" * 8000}, *said]  # another beginning is nothing known
            waits = asyncio.create_task(running.client.post(path, json={"model": MODEL, "messages": other}))
            await until(lambda: work.count == threads + 1)
            assert not waits.done()
        assert (await waits).status_code == 200


async def test_long_calls_are_not_looked_up_where_others_would_wait(folder: Path) -> None:
    """Arguments of calls are rendered as messages are, and count as they do."""
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": json.dumps({"x": "y" * 300_000})}}
    messages = [
        {"role": "user", "content": "Call it."},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": "Done."},
    ]
    async with gateway(folder, max_seq_len=MOST) as running:
        async with occupied(LARGE_PROMPTS):
            asked = {"model": MODEL, "messages": messages}
            waits = asyncio.create_task(running.client.post("/v1/chat/completions", json=asked))
            await until(lambda: LARGE_PROMPTS.count == 2)
        assert (await waits).status_code in (200, 400)


async def test_large_bodies_of_many_parts_are_read_in_their_turn(folder: Path) -> None:
    async with gateway(folder) as running:
        body = {"messages": [{"role": "user", "content": "a"}] * 2_100, "padding": "a" * 150_000}
        async with occupied(BODIES):
            waits = asyncio.create_task(running.client.post("/tokenize", json=body))
            await until(lambda: BODIES.count == 2)
            assert not waits.done()
        assert (await waits).status_code in (200, 400)


async def test_a_turn_that_does_not_come_ends_with_504(folder: Path) -> None:
    async with gateway(folder, max_seq_len=8192, timeouts={"first_token_s": 0.01}) as running, occupied(PROMPTS, 2):
        answer = await running.client.post("/v1/completions", json={"model": MODEL, "prompt": [1] * 5000})
        assert (answer.status_code, answer.json()["error"]["code"]) == (504, "timeout")


async def test_a_client_that_leaves_in_the_queue_is_not_tokenized_for(folder: Path) -> None:
    async with gateway(folder, served=True, max_seq_len=8192) as running:
        async with occupied(PROMPTS, 2):
            body = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "a" * 5000}]}).encode()
            for path in ("/tokenize", "/v1/chat/completions", "/v1/chat/completions/render"):
                _, writer = await asyncio.open_connection("127.0.0.1", running.client.base_url.port)
                head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
                writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
                await until(lambda: PROMPTS.count == 3)
                writer.close()
                await until(lambda: PROMPTS.count == 2)  # its place is free before those who hold it up are done
        assert (await running.client.post("/tokenize", json={"messages": USER})).status_code == 200
        assert not running.engine.requests
