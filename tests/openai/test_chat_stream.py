"""Streams: their bytes, their errors, and what happens when a client leaves."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai.types.chat import ChatCompletionChunk

from gateway.generation import EngineChunk, EngineError, ErrorKind
from tests.app.harness import USER, Gateway, gateway
from tests.app.scripted import MODEL, ByteIds, chunks

STREAM = {"model": MODEL, "messages": USER, "stream": True}


def events(content: bytes) -> list[bytes]:
    """The data of each event; comments left out."""
    parts = content.split(b"\n\n")
    assert parts.pop() == b""
    assert all(part.startswith((b"data: ", b": ")) for part in parts)
    return [part[len(b"data: ") :] for part in parts if not part.startswith(b": ")]


def checked(content: bytes) -> list[ChatCompletionChunk]:
    """The chunks of a whole stream, with OpenAI's fields at each level, vLLM's stop_reason, and no others."""
    *datas, done = events(content)
    assert done == b"[DONE]"
    result = []
    for data in datas:
        chunk = json.loads(data)
        assert set(chunk) <= {"id", "object", "created", "model", "choices", "usage"}
        for choice in chunk["choices"]:
            last = {"stop_reason"} if choice["finish_reason"] else set()
            assert set(choice) == {"index", "delta", "logprobs", "finish_reason"} | last
            assert set(choice["delta"]) <= {"role", "content"}
        result.append(ChatCompletionChunk.model_validate(chunk, strict=True))
    return result


@contextlib.asynccontextmanager
async def streaming(
    folder: Path, script: Any, path: str = "/v1/chat/completions", body: Any = STREAM, **changes: Any
) -> AsyncIterator[tuple[Gateway, httpx.Response]]:
    """A stream that a real server sends."""
    async with (
        gateway(folder, script, served=True, **changes) as running,
        running.client.stream("POST", path, json=body) as answer,
    ):
        assert answer.status_code == 200
        yield running, answer


async def test_what_is_ready_leaves_in_one_write_with_an_event_a_token(folder: Path) -> None:
    ids = ByteIds(folder).of("Hello")
    async with streaming(folder, lambda _: chunks(ids)) as (_, answer):
        writes = [data async for data in answer.aiter_raw()]
        assert len(checked(b"".join(writes))) == 1 + 5 + 1
        assert len(writes) < 5


async def test_a_deadline_inside_a_stream_is_an_error_event(folder: Path) -> None:
    never, ids = asyncio.Event(), ByteIds(folder).of("H")
    timeouts = {"total_s": 0.1, "first_token_s": 5}
    async with gateway(folder, lambda _: [EngineChunk(ids=ids), never], timeouts=timeouts) as running:
        answer = await running.client.post("/v1/chat/completions", json=STREAM)
        assert json.loads(events(answer.content)[-1])["error"]["code"] == "timeout"


async def test_headers_and_comments_while_the_engine_is_silent(folder: Path) -> None:
    gate = asyncio.Event()
    ids = ByteIds(folder).of("Hi")
    timeouts = {"headers_s": 0.05, "keepalive_s": 0.05}

    def script(request: Any) -> Any:
        return [gate, EngineChunk(ids=[ids[0]]), gate2, EngineChunk(ids=[ids[1]], final=True)]

    gate2 = asyncio.Event()
    async with streaming(folder, script, timeouts=timeouts) as (_, answer):
        raw = answer.aiter_raw()
        got = b""
        while got.count(b": ") < 3:
            got += await anext(raw)
        assert b"data:" not in got
        gate.set()
        while got.rpartition(b'"H"')[2].count(b"\n\n: ") < 2 or b'"H"' not in got:
            got += await anext(raw)
        gate2.set()
        got += b"".join([data async for data in raw])
        assert [chunk.choices[0].delta.content for chunk in checked(got)] == ["", "H", "i", None]


async def test_no_text_overtakes_the_role_after_a_comment(folder: Path) -> None:
    gate = asyncio.Event()
    ids = ByteIds(folder).of("éab")  # the first token is half a character: it shows nothing

    def script(request: Any) -> Any:
        return [gate, *(EngineChunk(ids=[index]) for index in ids), EngineChunk(final=True)]

    async with streaming(folder, script, timeouts={"headers_s": 0.02, "keepalive_s": 0.05}) as (_, answer):
        raw = answer.aiter_raw()
        got = await anext(raw)
        assert got.startswith(b": ")
        gate.set()
        got += b"".join([data async for data in raw])
    first, *others = checked(got)
    assert first.choices[0].delta.role == "assistant"
    assert not any(chunk.choices[0].delta.role for chunk in others)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in others) == "éab"


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
async def test_a_client_that_stops_reading_holds_the_engine_back(folder: Path, path: str) -> None:
    ids, total, given = ByteIds(folder).of("x"), 60_000, 0

    def script(request: Any) -> Any:
        nonlocal given
        for given in range(1, total + 1):  # noqa: B007 - how far the engine was read
            yield EngineChunk(ids=ids)
        yield EngineChunk(final=True)

    body = {"model": STREAM["model"], "stream": True, "max_tokens": total}
    body |= {"prompt": "p"} if path == "/v1/completions" else {"messages": STREAM["messages"]}
    async with streaming(folder, script, path, body, max_seq_len=100_000, tokens_per_block=32) as (_, answer):
        raw = answer.aiter_raw()
        got = [await anext(raw)]
        before = -1
        while before != given:  # until the sockets are full
            before = given
            await asyncio.sleep(0.3)
        assert before < total
        got += [data async for data in raw]
        whole = b"".join(got)
    assert whole.endswith(b"data: [DONE]\n\n")
    assert whole.count(b'"x"') == total


async def test_a_defect_ends_a_stream_with_an_error_event(folder: Path) -> None:
    ids = ByteIds(folder).of("ab")
    script: Any = lambda _: [EngineChunk(ids=[ids[0]]), EngineChunk(ids=["no id"])]  # type: ignore[list-item]  # noqa: E731
    async with streaming(folder, script) as (_, answer):
        content = b"".join([data async for data in answer.aiter_raw()])
    last = json.loads(events(content)[-1])
    assert last["error"]["type"] == "server_error"
    assert "no id" not in str(last)


async def test_an_error_after_early_headers_is_an_event(folder: Path) -> None:
    gate = asyncio.Event()
    failure = EngineError(ErrorKind.QUEUE_FULL, "Full.")
    async with streaming(folder, lambda _: [gate, failure], timeouts={"headers_s": 0.02}) as (_, answer):
        gate.set()
        content = b"".join([data async for data in answer.aiter_raw()])
        (only,) = events(content)
        assert json.loads(only)["error"]["code"] == "rate_limit_exceeded"


async def in_flight(running: Gateway) -> tuple[float, float]:
    """The gauges of running and of cancelled requests."""
    text = (await running.client.get("/metrics")).text
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    labels = '{model="scripted"}'
    return float(values["gateway_requests_in_flight" + labels]), float(
        values["gateway_requests_cancelled_total" + labels]
    )


async def test_a_client_that_leaves_before_the_first_token_closes_the_engine(folder: Path) -> None:
    never = asyncio.Event()
    for body in (STREAM, {**STREAM, "stream": False}):
        async with gateway(folder, lambda _: [never], served=True) as running:
            asking = asyncio.create_task(running.client.post("/v1/chat/completions", json=body))
            await running.engine.asked.wait()
            asking.cancel()
            await asyncio.wait_for(running.engine.left.wait(), 5)
            assert await in_flight(running) == (0, 1)
