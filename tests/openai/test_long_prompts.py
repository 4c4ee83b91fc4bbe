"""Prompts that no context holds are refused before all of them is tokenized; nobody tokenizes for who has left."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway.serving.long_work import BODIES, LARGE_PROMPTS, PROMPTS, LongWork
from gateway.text.tokens import Tokenizer
from tests.app.harness import USER, gateway, rejected
from tests.app.scripted import MAX_SEQ_LEN, MODEL
from tests.waiting import until

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
