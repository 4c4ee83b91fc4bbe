"""Requests are freed when they end: the garbage collector, which stops everything, has no work with them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gateway.generation import EngineChunk, EngineError, ErrorKind, GenerationRequest
from tests.app.harness import USER, gateway
from tests.app.scripted import MODEL, ByteIds, Step, write_tokenizer
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


_TEXT = "A word or two. " * 1000


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": USER, "logprobs": True, "top_logprobs": 2, "stream": True}),
        ("/v1/completions", {"prompt": [_TEXT, "Hi"], "n": 2, "echo": True}),
        ("/v1/responses", {"input": "Hi"}),
        ("/v1/responses", {"input": _TEXT, "stream": True}),
        ("/v1/responses/input_tokens", {"input": _TEXT}),
        ("/v1/messages", {"messages": USER}),
        ("/v1/messages", {"messages": [{"role": "user", "content": _TEXT}], "stream": True}),
        ("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": _TEXT}]}),
        ("/tokenize", {"prompt": _TEXT, "return_token_strs": True}),
        ("/detokenize", {"tokens": [65] * 20_000}),
    ],
)
async def test_each_endpoint_leaves_nothing(folder: Path, path: str, body: dict[str, Any]) -> None:
    limit = {} if "tokens" in path or "tokenize" in path or "render" in path else {"max_tokens": 3}
    if path == "/v1/responses":
        limit = {"max_output_tokens": 3, "store": False}
    async with gateway(folder, served=True, max_seq_len=200_000) as running:

        async def ask() -> None:
            headers = {"connection": "close"}
            answer = await running.client.post(path, json={"model": MODEL, **limit, **body}, headers=headers)
            assert answer.status_code == 200, answer.text
            running.engine.requests.clear()

        await check_leaves_nothing(ask)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_call_leaves_nothing(tmp_path: Path, *, stream: bool) -> None:
    write_tokenizer(tmp_path, "{{ tools }}{% for message in messages %}{{ message.content }}{% endfor %}")
    ids = ByteIds(tmp_path).of('<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>')

    def calls(_: GenerationRequest) -> list[Step]:
        return [*(EngineChunk(ids=[index]) for index in ids), EngineChunk(final=True)]

    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    body = {"model": MODEL, "messages": USER, "tools": tools, "stream": stream}
    async with gateway(tmp_path, calls, served=True, family="hermes") as running:

        async def ask() -> None:
            headers = {"connection": "close"}
            answer = await running.client.post("/v1/chat/completions", json=body, headers=headers)
            assert '"tool_calls"' in answer.text, answer.text
            running.engine.requests.clear()

        await check_leaves_nothing(ask)


@pytest.mark.parametrize("status", [200, 400])
@pytest.mark.parametrize("characters", [10_000, 100_000])  # of which the longer one is parsed in another thread, too
async def test_a_long_request_leaves_nothing(folder: Path, characters: int, status: int) -> None:
    role = "user" if status == 200 else "nobody"
    text = "A word or two. " * (characters // 15)
    body = {"model": MODEL, "max_tokens": 3, "messages": [{"role": role, "content": text}]}
    async with gateway(folder, served=True, max_seq_len=200_000) as running:

        async def ask() -> None:
            answer = await running.client.post("/v1/chat/completions", json=body, headers={"connection": "close"})
            assert answer.status_code == status, answer.text
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
