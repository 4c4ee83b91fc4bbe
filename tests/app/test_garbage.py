"""Requests are freed when they end: the garbage collector, which stops everything, has no work with them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gateway.generation import EngineChunk, EngineError, ErrorKind, GenerationRequest
from tests.app.harness import USER, gateway
from tests.app.scripted import MODEL, ByteIds, Step
from tests.garbage import check_leaves_nothing


@pytest.mark.parametrize(
    ("changes", "status"),
    [({}, 200), ({"stream": True}, 200), ({"stream": True, "n": 2}, 200), ({"temperature": 9}, 400)],
)
async def test_a_request_leaves_nothing(folder: Path, changes: dict[str, Any], status: int) -> None:
    body = {"model": MODEL, "messages": USER, "max_tokens": 3, **changes}
    async with gateway(folder, served=True) as running:

        async def ask() -> None:
            answer = await running.client.post("/v1/chat/completions", json=body, headers={"connection": "close"})
            assert answer.status_code == status
            running.engine.requests.clear()

        await check_leaves_nothing(ask)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
async def test_a_request_that_fails_leaves_nothing(folder: Path, path: str, *, stream: bool) -> None:
    ids = ByteIds(folder).of("abc")

    def breaks(_: GenerationRequest) -> list[Step]:
        return [*(EngineChunk(ids=[index]) for index in ids), EngineError(ErrorKind.INTERNAL, "It broke.")]

    body = {"model": MODEL, "max_tokens": 5, "stream": stream}
    body |= {"messages": USER} if "chat" in path else {"prompt": "Hi"}
    async with gateway(folder, breaks, served=True) as running:

        async def ask() -> None:
            answer = await running.client.post(path, json=body, headers={"connection": "close"})
            assert "error" in answer.text
            running.engine.requests.clear()

        await check_leaves_nothing(ask)


async def test_a_client_that_leaves_leaves_nothing(folder: Path) -> None:
    ids = ByteIds(folder).of("abc")

    def waits(_: GenerationRequest) -> list[Step]:
        return [*(EngineChunk(ids=[index]) for index in ids), asyncio.Event()]

    body = {"model": MODEL, "max_tokens": 5, "stream": True, "messages": USER}
    async with gateway(folder, waits, served=True) as running:

        async def ask() -> None:
            async with running.client.stream("POST", "/v1/chat/completions", json=body) as answer:
                async for _ in answer.aiter_lines():
                    break
            running.engine.requests.clear()

        await check_leaves_nothing(ask)
