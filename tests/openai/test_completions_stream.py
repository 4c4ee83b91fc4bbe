"""Streamed completions: chunks as OpenAI sends them, several choices, usage, and failures."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from gateway.generation import EngineChunk, GenerationRequest
from tests.app.harness import gateway
from tests.app.scripted import ByteIds
from tests.openai.completions_harness import complete, events


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
