"""A gateway with little memory, flooded: it refuses in the API's shape, finishes what runs, and recovers."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.settings import ConfigError, load_settings
from tests.stack import GatewayProcess
from tests.triton.scripted_triton import ScriptedTriton, tokens

MIB = 2**20
BODIES = 8
HEAD = (
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n"
    b"content-type: application/json\r\ncontent-length: 16777216\r\n\r\n"
)
HI = [{"role": "user", "content": "Hi"}]
LARGE = {"model": "m", "messages": [{"role": "user", "content": "a" * 200_000}]}


class SlowTriton(ScriptedTriton):
    """Gives a token, and the end of each answer when it is let go on."""

    def __init__(self) -> None:
        super().__init__(self._answer)
        self.go_on = asyncio.Event()
        self.go_on.set()  # while the gateway finds out what it can

    async def _answer(self, _request: Any, _context: Any) -> AsyncIterator[Any]:
        yield tokens(7)
        await self.go_on.wait()
        yield tokens(8, final=True)


@contextlib.asynccontextmanager
async def serving(process: GatewayProcess) -> AsyncIterator[GatewayProcess]:
    """In threads: its Triton is on this loop."""
    await asyncio.to_thread(process.start)
    try:
        yield process
    finally:
        await asyncio.to_thread(process.stop)


def process(folder: Path, tmp_path: Path, url: str, **memory: object) -> GatewayProcess:
    file = tmp_path / "gateway.yaml"
    model = {
        "name": "m",
        "triton": {"url": url, "stall_s": 0},
        "tokenizer": str(folder),
        "max_seq_len": 256,
        "path": "tokens",
    }
    file.write_text(json.dumps({"server": {"memory": memory}, "models": [model]}))
    return GatewayProcess(tmp_path / "log", GATEWAY_CONFIG=str(file))


async def until(running: GatewayProcess, client: httpx.AsyncClient, state: str, holds: int) -> None:
    """Wait until ``/metrics`` says that a state holds, or does not."""
    line = f'gateway_overload_state{{state="{state}"}} {float(holds)}'
    while True:
        page = (await client.get("/metrics")).text
        if line in page:
            return
        await asyncio.sleep(0.05)


async def test_a_flood_is_refused_and_what_runs_is_finished(folder: Path, tmp_path: Path) -> None:
    async with SlowTriton() as triton, contextlib.AsyncExitStack() as stack:
        async with serving(process(folder, tmp_path, triton.url)) as idle:
            base = int(await asyncio.to_thread(idle.metric, "gateway_memory_bytes"))
        limits = {"soft": base + 50 * MIB, "hard": base + 80 * MIB, "wait_s": 0.3}
        running = await stack.enter_async_context(serving(process(folder, tmp_path, triton.url, **limits)))
        triton.go_on.clear()
        client = await stack.enter_async_context(httpx.AsyncClient(base_url=running.url, timeout=60))
        opened = client.stream("POST", "/v1/chat/completions", json={"model": "m", "messages": HI, "stream": True})
        stream = await stack.enter_async_context(opened)
        lines = stream.aiter_lines()
        assert (await anext(lines)).startswith("data: ")

        loop = asyncio.get_running_loop()
        flood = [stack.enter_context(socket.create_connection(("127.0.0.1", running.port))) for _ in range(BODIES)]
        for each in flood:
            each.setblocking(False)
            await loop.sock_sendall(each, HEAD + b" " * (7 * MIB))
        await until(running, client, "soft", 1)
        rejected = await client.post("/v1/chat/completions", json=LARGE)
        assert_rejected(rejected)
        before = len(triton.requests)
        small = asyncio.create_task(client.post("/v1/chat/completions", json={"model": "m", "messages": HI}))
        await triton.until(lambda: len(triton.requests) > before)  # it is served, as the stream is

        for each in flood:
            await loop.sock_sendall(each, b" " * (8 * MIB))
        await until(running, client, "hard", 1)
        assert_rejected(await client.post("/v1/chat/completions", json={"model": "m", "messages": HI}))
        message = await client.post("/v1/messages", json={"model": "m", "messages": HI, "max_tokens": 9})
        assert (message.status_code, message.json()["error"]["type"]) == (529, "overloaded_error")
        assert (await client.get("/health/ready")).status_code == 200
        assert (await client.get("/v1/models")).status_code == 200

        triton.go_on.set()
        assert "data: [DONE]" in [line async for line in lines]
        assert (await small).status_code == 200
        for each in flood:
            each.close()
        await until(running, client, "hard", 0)
        await until(running, client, "soft", 0)
        again = await client.post("/v1/chat/completions", json=LARGE)
        assert again.json()["error"]["code"] == "context_length_exceeded"  # it is read again
        metric = functools.partial(asyncio.to_thread, running.metric)
        assert await metric("gateway_overload_refused_requests_total") == 3
        assert await metric("gateway_memory_bytes") < base + 50 * MIB
    said = [line["state"] for line in map(json.loads, running.log_lines()) if line["message"].startswith("memory: ")]
    assert said in (["soft", "hard", "soft", "normal"], ["soft", "hard", "normal"])


def assert_rejected(answer: httpx.Response) -> None:
    error = answer.json()["error"]
    assert (answer.status_code, error["type"], error["code"]) == (503, "server_error", "service_unavailable")
    assert answer.headers["retry-after"] == "1"
    assert error["message"] == "The gateway is short of memory; try again in a moment."


@pytest.mark.parametrize("limits", [{"soft": 0.9, "hard": 0.5}, {"soft": 5}, {"hard": -1}, {"wait_s": -1}])
def test_limits_that_make_no_sense_are_named(folder: Path, tmp_path: Path, limits: dict[str, float]) -> None:
    file = tmp_path / "gateway.yaml"
    file.write_text(json.dumps({"server": {"memory": limits}, "models": [{"name": "m", "triton": {"url": "x:1"}}]}))
    with pytest.raises(ConfigError, match=r"server\.memory"):
        load_settings(file, {})
