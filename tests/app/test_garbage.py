"""Requests are freed when they end: the garbage collector, which stops everything, has no work with them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gateway.generation import EngineChunk, EngineError, ErrorKind, GenerationRequest
from tests.app.harness import USER, Gateway, gateway
from tests.app.scripted import MODEL, ByteIds, Step, write_tokenizer
from tests.garbage import check_leaves_nothing

CHAT = "/v1/chat/completions"
TEXT = "A word or two. " * 1000
LONGER = TEXT * 7  # which is parsed in another thread


async def check(running: Gateway, path: str, body: dict[str, Any], status: int = 200, said: str = "") -> None:
    async def ask() -> None:
        answer = await running.client.post(path, json={"model": MODEL, **body}, headers={"connection": "close"})
        assert answer.status_code == status, answer.text
        assert said in answer.text
        running.engine.requests.clear()

    await check_leaves_nothing(ask)


def chat(text: str = "Hi", role: str = "user", **more: Any) -> tuple[str, dict[str, Any]]:
    return CHAT, {"messages": [{"role": role, "content": text}], "max_tokens": 3, **more}


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        (*chat(), 200),
        (*chat(stream=True), 200),
        (*chat(stream=True, n=2), 200),
        (*chat(temperature=9), 400),
        (*chat(logprobs=True, top_logprobs=2, stream=True), 200),
        *((*chat(text, role), status) for text in (TEXT, LONGER) for role, status in (("user", 200), ("nobody", 400))),
        ("/v1/completions", {"prompt": [TEXT, "Hi"], "n": 2, "echo": True, "max_tokens": 3}, 200),
        ("/v1/responses", {"input": "Hi", "max_output_tokens": 3, "store": False}, 200),
        ("/v1/responses", {"input": TEXT, "max_output_tokens": 3, "store": False, "stream": True}, 200),
        ("/v1/responses/input_tokens", {"input": TEXT}, 200),
        ("/v1/messages", {"messages": USER, "max_tokens": 3}, 200),
        ("/v1/messages", {"messages": [{"role": "user", "content": TEXT}], "max_tokens": 3, "stream": True}, 200),
        ("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": TEXT}]}, 200),
        ("/tokenize", {"prompt": TEXT, "return_token_strs": True}, 200),
        ("/detokenize", {"tokens": [65] * 20_000}, 200),
    ],
)
async def test_a_request_leaves_nothing(folder: Path, path: str, body: dict[str, Any], status: int) -> None:
    async with gateway(folder, served=True, max_seq_len=200_000) as running:
        await check(running, path, body, status)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_call_leaves_nothing(tmp_path: Path, *, stream: bool) -> None:
    write_tokenizer(tmp_path, "{{ tools }}{% for message in messages %}{{ message.content }}{% endfor %}")
    ids = ByteIds(tmp_path).of('<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>')

    def calls(_: GenerationRequest) -> list[Step]:
        return [*(EngineChunk(ids=[index]) for index in ids), EngineChunk(final=True)]

    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    async with gateway(tmp_path, calls, served=True, family="hermes") as running:
        await check(running, CHAT, {"messages": USER, "tools": tools, "stream": stream}, said='"tool_calls"')


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("path", "body"), [(CHAT, {"messages": USER}), ("/v1/completions", {"prompt": "Hi"})])
async def test_a_request_that_fails_leaves_nothing(
    folder: Path, path: str, body: dict[str, Any], *, stream: bool
) -> None:
    ids = ByteIds(folder).of("abc")

    def breaks(_: GenerationRequest) -> list[Step]:
        return [*(EngineChunk(ids=[index]) for index in ids), EngineError(ErrorKind.INTERNAL, "It broke.")]

    async with gateway(folder, breaks, served=True) as running:
        await check(running, path, {"max_tokens": 5, "stream": stream, **body}, 200 if stream else 500, "error")


async def test_a_client_that_leaves_leaves_nothing(folder: Path) -> None:
    ids = ByteIds(folder).of("abc")

    def waits(_: GenerationRequest) -> list[Step]:
        return [*(EngineChunk(ids=[index]) for index in ids), asyncio.Event()]

    body = {"model": MODEL, "max_tokens": 5, "stream": True, "messages": USER}
    async with gateway(folder, waits, served=True) as running:

        async def ask() -> None:
            async with running.client.stream("POST", CHAT, json=body) as answer:
                async for _ in answer.aiter_lines():
                    break
            running.engine.requests.clear()

        await check_leaves_nothing(ask)
