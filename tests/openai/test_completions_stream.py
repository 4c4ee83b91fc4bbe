"""Streamed completions: chunks as OpenAI sends them, several choices, usage, and failures."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

from gateway.generation import EngineChunk, EngineError, ErrorKind, GenerationRequest
from tests.app.harness import gateway
from tests.app.scripted import ByteIds
from tests.openai.completions_harness import complete, events, joined


async def test_an_event_a_token_and_the_reason_last(folder: Path) -> None:
    async with gateway(folder, served=True) as running:
        answer = await complete(running, "Hi", stream=True)
        assert answer.headers["content-type"].startswith("text/event-stream")
        chunks = events(answer.content)
        assert [chunk["choices"][0]["text"] for chunk in chunks] == ["H", "e", "l", "l", "o", ""]
        assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * 5 + ["stop"]
        assert {chunk["object"] for chunk in chunks} == {"text_completion"}
        assert all("usage" not in chunk for chunk in chunks)


async def test_usage_at_the_end_and_with_every_chunk(folder: Path) -> None:
    async with gateway(folder) as running:
        asked = {"stream": True, "max_tokens": 2, "n": 2}
        *chunks, last = events(
            (await complete(running, ["a", "bc"], **asked, stream_options={"include_usage": True})).content
        )
        assert {chunk["usage"] for chunk in chunks} == {None}
        assert last["choices"] == []
        assert (last["usage"]["prompt_tokens"], last["usage"]["completion_tokens"]) == (3, 8)
        options = {"include_usage": True, "continuous_usage_stats": True}
        *chunks, last = events((await complete(running, ["a", "bc"], **asked, stream_options=options)).content)
        counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
        assert counts == sorted(counts)
        assert last["usage"]["completion_tokens"] == 8


async def test_choices_of_several_prompts_side_by_side(folder: Path) -> None:
    gate = asyncio.Event()

    def script(request: GenerationRequest) -> list[Any]:
        ids = ByteIds(folder).of(request.prompt.text.upper())
        waits = [gate] if request.prompt.text == "ab" else []
        gate_opener = EngineChunk(final=True)
        return [*waits, *(EngineChunk(ids=[index]) for index in ids), gate_opener]

    async with (
        gateway(folder, script, served=True) as running,
        running.client.stream(
            "POST", "/v1/completions", json={"model": "scripted", "prompt": ["ab", "cd"], "echo": True, "stream": True}
        ) as answer,
    ):
        content = b""
        async for data in answer.aiter_raw():
            content += data
            if b'"index":1,"text":"","logprobs":null,"finish_reason":"stop"' in content:
                gate.set()  # the second choice ended before the first one began
        chunks = events(content)
        assert joined(chunks, 0)["text"] == "abAB"
        assert joined(chunks, 1)["text"] == "cdCD"
        assert chunks[0]["choices"][0]["index"] == 1


async def test_the_work_grows_with_the_number_of_choices_and_no_faster(folder: Path) -> None:
    def script(request: GenerationRequest) -> list[Any]:
        return [*(EngineChunk(ids=[index]) for index in ByteIds(folder).of("abcdefgh")), EngineChunk(final=True)]

    async with gateway(folder, script, served=True) as running:

        async def seconds(prompts: int) -> float:
            start = time.process_time()
            answer = await complete(running, ["x"] * prompts, stream=True, stream_options={"include_usage": True})
            assert events(answer.content)[-1]["usage"]["completion_tokens"] == 8 * prompts
            return time.process_time() - start

        few = await seconds(40)
        assert await seconds(8 * 40) < 24 * few


async def test_one_failure_ends_all(folder: Path) -> None:
    never = asyncio.Event()

    def script(request: GenerationRequest) -> list[Any]:
        if request.prompt.text == "bad":
            return [
                EngineChunk(ids=ByteIds(folder).of("x")),
                EngineError(ErrorKind.UNAVAILABLE, "Triton left.", "secret"),
            ]
        return [EngineChunk(ids=ByteIds(folder).of("y")), never]

    async with gateway(folder, script, served=True) as running:
        answer = await complete(running, ["good", "bad"], stream=True)
        assert answer.status_code == 200
        last = [line for line in answer.text.split("\n\n") if line][-1]
        assert json.loads(last.removeprefix("data: "))["error"]["code"] == "service_unavailable"
        assert "secret" not in answer.text
        assert len(running.engine.closed_early) == 1
    async with gateway(folder, script, served=True) as running:  # that connection was closed
        whole = await complete(running, ["good", "bad"])
        assert (whole.status_code, whole.json()["error"]["code"]) == (503, "service_unavailable")
        assert len(running.engine.closed_early) == 1


async def test_comments_while_the_engine_is_silent(folder: Path) -> None:
    gate = asyncio.Event()
    ids = ByteIds(folder).of("H")
    async with (
        gateway(
            folder,
            lambda _: [gate, EngineChunk(ids=ids, final=True)],
            served=True,
            timeouts={"headers_s": 0.02, "keepalive_s": 0.02},
        ) as running,
        running.client.stream(
            "POST", "/v1/completions", json={"model": "scripted", "prompt": "a", "stream": True, "n": 2}
        ) as answer,
    ):
        content = b""
        async for data in answer.aiter_raw():
            content += data
            if content.count(b": waiting") > 1:
                gate.set()
        assert joined(events(content.replace(b": waiting\n\n", b"")), 1)["text"] == "H"


async def test_a_client_that_leaves_closes_every_generation(folder: Path) -> None:
    never = asyncio.Event()
    ids = ByteIds(folder).of("H")
    async with gateway(folder, lambda _: [EngineChunk(ids=ids), never], served=True) as running:
        body = {"model": "scripted", "prompt": ["a", "b"], "stream": True, "n": 2}
        async with running.client.stream("POST", "/v1/completions", json=body) as answer:
            content = b""
            async for data in answer.aiter_raw():
                content += data
                if content.count(b'"text":"H"') == 4:
                    break
        while len(running.engine.closed_early) < 4:
            await asyncio.wait_for(running.engine.left.wait(), 5)
            running.engine.left.clear()
