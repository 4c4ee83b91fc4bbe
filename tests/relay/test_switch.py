"""With the relay and without it clients get the same bytes."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from gateway.generation import EngineChunk, EngineError, ErrorKind, GenerationRequest
from tests.app.harness import USER, gateway
from tests.app.scripted import MODEL, ByteIds, RelayingEngine, Script

ENDPOINTS = ["/v1/chat/completions", "/v1/completions"]
OWN = re.compile(
    rb'"(?:item_)?id":"[^"]+"|"created(?:_at)?":\d+|"completed_at":\d+|"(?:obfuscation|signature)":"[^"]*"'
)
TEXT = 'a\u2028b\u2029c\x85d "quoted" \\ é 世界 \U0001f600'


def body_for(path: str, **fields: Any) -> dict[str, Any]:
    if path == "/v1/responses":
        return {"model": MODEL, "stream": True, "max_output_tokens": 200, "input": "Hi", "store": False, **fields}
    asked = {"prompt": "Hi"} if path == "/v1/completions" else {"messages": USER}
    return {"model": MODEL, "stream": True, "max_tokens": 200, **asked, **fields}


async def streamed(
    folder: Path, script: Script, path: str, *, relay: bool, model: Mapping[str, Any] | None = None, **fields: Any
) -> tuple[bytes, int]:
    """The whole answer without what is its own, and how many tokens took the short way."""
    async with (
        gateway(
            folder, script, served=True, engine_type=RelayingEngine, server={"relay": relay}, **(model or {})
        ) as running,
        running.client.stream("POST", path, json=body_for(path, **fields)) as answer,
    ):
        assert answer.status_code == 200
        content = b"".join([data async for data in answer.aiter_raw()])
        assert isinstance(running.engine, RelayingEngine)
        return OWN.sub(b"", content), running.engine.relayed


def of_sizes(ids: list[int], sizes: list[int]) -> Iterator[EngineChunk]:
    """Ids in responses of one token, then of the sizes in turn."""
    yield EngineChunk(ids=ids[:1])
    start, turn = 1, 0
    while start < len(ids):
        size = sizes[turn % len(sizes)]
        yield EngineChunk(ids=ids[start : start + size])
        start, turn = start + size, turn + 1
    yield EngineChunk(final=True)


@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("sizes", [[1], [3], [1, 5, 2]])
async def test_of_a_plain_stream(folder: Path, path: str, sizes: list[int]) -> None:
    ids = ByteIds(folder).of(TEXT)

    def script(_: GenerationRequest) -> Any:
        return of_sizes(ids, sizes)

    short, relayed = await streamed(folder, script, path, relay=True)
    long, without = await streamed(folder, script, path, relay=False)
    assert short == long
    assert short.endswith(b"data: [DONE]\n\n")
    assert relayed > len(ids) // 2, "else nothing is compared"
    assert without == 0


@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize(
    "fields",
    [
        {"stream_options": {"include_usage": True}},
        {"stop": "wor"},
        {"max_tokens": 4},
        {"return_token_ids": True},
        {"n": 2},
    ],
    ids="-".join,
)
async def test_of_a_stream_with_more_than_text(folder: Path, path: str, fields: dict[str, Any]) -> None:
    ids = ByteIds(folder).of("Hello, world.")

    def script(request: GenerationRequest) -> Any:
        return of_sizes(ids[: request.max_tokens], [1])

    answers = [await streamed(folder, script, path, relay=relay, **fields) for relay in (True, False)]
    short, long = (sorted(content.split(b"\n\n")) if "n" in fields else content for content, _ in answers)
    assert short == long


@pytest.mark.parametrize("relay", [True, False])
async def test_of_a_stream_that_says_its_usage_so_far(folder: Path, *, relay: bool) -> None:
    ids = ByteIds(folder).of("Hello, world.")

    def script(_: GenerationRequest) -> Any:
        return of_sizes(ids, [1, 2])

    options = {"include_usage": True, "continuous_usage_stats": True}
    content, relayed = await streamed(folder, script, ENDPOINTS[0], relay=relay, stream_options=options)
    events = content.replace(b"{,", b"{").replace(b",,", b",").split(b"\n\n")[:-2]
    chunks = [json.loads(event.removeprefix(b"data: ")) for event in events]
    told = [(chunk["choices"][0]["delta"].get("content", ""), chunk["usage"]) for chunk in chunks if chunk["choices"]]
    texts, counts = [text for text, _ in told], [usage["completion_tokens"] for _, usage in told]
    assert "".join(texts) == "Hello, world."
    assert counts == sorted(counts)
    assert [count >= len("".join(texts[: place + 1])) for place, count in enumerate(counts)] == [True] * len(counts)
    assert chunks[-1]["usage"]["completion_tokens"] == counts[-1] == len(ids)
    assert bool(relayed) == relay


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/v1/messages"])
@pytest.mark.parametrize("fields", [{}, {"stop": ["never"]}], ids=["plain", "stop"])
async def test_of_an_answer_that_is_parsed(folder: Path, path: str, fields: dict[str, Any]) -> None:
    ids = ByteIds(folder).of(
        "<think>\nA thought, and a thought.\n</think>\n\nAn answer < an answer and another answer."
    )

    def script(_: GenerationRequest) -> Any:
        return of_sizes(ids, [1])

    if path == "/v1/messages" and fields:
        fields = {"stop_sequences": fields["stop"]}
    elif path == "/v1/responses":
        fields = {}
    (short, relayed), (long, without) = [
        await streamed(folder, script, path, relay=relay, model={"family": "qwen3"}, **fields)
        for relay in (True, False)
    ]
    assert short == long
    assert without == 0
    assert bool(relayed) == (not fields)


@pytest.mark.parametrize("path", ENDPOINTS)
async def test_of_a_stream_that_fails(folder: Path, path: str) -> None:
    ids = ByteIds(folder).of("Hello")

    def script(_: GenerationRequest) -> Any:
        return [*(EngineChunk(ids=[index]) for index in ids), EngineError(ErrorKind.UNAVAILABLE, "Triton left.")]

    short, relayed = await streamed(folder, script, path, relay=True)
    long, _ = await streamed(folder, script, path, relay=False)
    assert short == long
    assert b"Triton left." in short
    assert relayed


@pytest.mark.parametrize("path", ENDPOINTS)
async def test_to_a_client_that_is_slow(folder: Path, path: str) -> None:
    letters, total = ByteIds(folder).of("xyz"), 20_000

    async def read_late(*, relay: bool) -> bytes:
        given = 0

        def script(_: GenerationRequest) -> Any:
            nonlocal given
            for given in range(1, total + 1):
                yield EngineChunk(ids=[letters[given % 3]])
            yield EngineChunk(final=True)

        settings: Any = {"server": {"relay": relay}, "max_seq_len": 100_000, "tokens_per_block": 32}
        async with (
            gateway(folder, script, served=True, engine_type=RelayingEngine, **settings) as running,
            running.client.stream("POST", path, json=body_for(path, max_tokens=total)) as answer,
        ):
            raw = answer.aiter_raw()
            content = await anext(raw)
            before = -1
            while before != given:  # until the sockets are full, or all is said
                before = given
                for _ in range(100):  # turns of the loop, which the server shares
                    await asyncio.sleep(0)
            content += b"".join([data async for data in raw])
        return OWN.sub(b"", content)

    short = await read_late(relay=True)
    assert short == await read_late(relay=False)
    assert short.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("relay", [True, False])
async def test_a_client_that_leaves_ends_the_request(folder: Path, path: str, *, relay: bool) -> None:
    ids, never = ByteIds(folder).of("abc"), asyncio.Event()

    def script(_: GenerationRequest) -> Any:
        return [*(EngineChunk(ids=[index]) for index in ids), never]

    async with gateway(folder, script, served=True, engine_type=RelayingEngine, server={"relay": relay}) as running:
        async with running.client.stream("POST", path, json=body_for(path)) as answer:
            content = b""
            async for data in answer.aiter_raw():
                content += data
                if b'"c"' in content:
                    break
        await asyncio.wait_for(running.engine.left.wait(), 5)
        assert len(running.engine.closed_early) == 1
    assert [content.count(b'"%c"' % letter) for letter in b"abc"] == [1, 1, 1]
