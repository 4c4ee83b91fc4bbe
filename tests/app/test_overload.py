"""Requests that wait for their turn, and a gateway with little memory that is flooded."""

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

from gateway.generation import EngineChunk
from gateway.settings import ConfigError, load_settings
from tests.app.harness import USER, Gateway, gateway
from tests.app.scripted import MODEL, ByteIds
from tests.stack import GatewayProcess
from tests.triton.scripted_triton import ScriptedTriton, tokens
from tests.waiting import until

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


async def until_state(running: GatewayProcess, client: httpx.AsyncClient, state: str, holds: int) -> None:
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
        await until_state(running, client, "soft", 1)
        rejected = await client.post("/v1/chat/completions", json=LARGE)
        assert_rejected(rejected)
        before = len(triton.requests)
        small = asyncio.create_task(client.post("/v1/chat/completions", json={"model": "m", "messages": HI}))
        await triton.until(lambda: len(triton.requests) > before)  # it is served, as the stream is

        for each in flood:
            await loop.sock_sendall(each, b" " * (8 * MIB))
        await until_state(running, client, "hard", 1)
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
        await until_state(running, client, "hard", 0)
        await until_state(running, client, "soft", 0)
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


ONE = {"max_running": 1, "max_wait_s": None}


def asked(running: Gateway) -> list[str]:
    """The system prompts of what the engine was asked, in their order."""
    return [request.prompt.text.split("name:")[1].split("<")[0] for request in running.engine.requests]


async def queue(running: Gateway, bodies: dict[str, dict[str, Any]]) -> list[asyncio.Task[Any]]:
    """Send requests one after the other, each once the one before it runs or waits."""
    tasks = []
    for place, (name, body) in enumerate(bodies.items(), 1):
        messages = [{"role": "system", "content": f"name:{name}"}, *USER]
        post = running.client.post("/v1/chat/completions", json={"model": MODEL, "messages": messages, **body})
        tasks.append(asyncio.create_task(post))
        await until(functools.partial(_are, running, place))
    return tasks


def _are(running: Gateway, count: int) -> bool:
    totals = running.model.admission.totals()
    return totals.running + totals.waiting == count


@pytest.mark.parametrize(
    ("bodies", "order"),
    [
        ({"runs": {}, "late": {"priority": 7}, "usual": {}, "soon": {"priority": -2}}, ["soon", "usual", "late"]),
        (
            {"runs": {}, "flex": {"service_tier": "flex"}, "auto": {}, "priority": {"service_tier": "priority"}},
            ["priority", "auto", "flex"],
        ),
        ({"runs": {}, "auto": {"service_tier": "auto"}, "fast": {"service_tier": "fast"}}, ["fast", "auto"]),
    ],
)
async def test_priorities_decide_whose_turn_is_next(
    folder: Path, bodies: dict[str, dict[str, Any]], order: list[str]
) -> None:
    gate, ids = asyncio.Event(), ByteIds(folder).of("Hi")
    script: Any = lambda _: [gate, EngineChunk(ids=ids, final=True)]  # noqa: E731
    async with gateway(folder, script, admission=ONE) as running:
        tasks = await queue(running, bodies)
        gate.set()
        answers = await asyncio.gather(*tasks)
        assert {answer.status_code for answer in answers} == {200}
        assert asked(running) == ["runs", *order]
        tiers = [answer.json().get("service_tier") for answer in answers]
        assert tiers == [
            {"auto": "default", "fast": "priority"}.get(tier, tier)
            for tier in (body.get("service_tier") for body in bodies.values())
        ]


async def test_a_request_that_does_not_fit_the_queue_is_told_when_to_come_again(folder: Path) -> None:
    gate, ids = asyncio.Event(), ByteIds(folder).of("Hi")
    script: Any = lambda _: [gate, EngineChunk(ids=ids, final=True)]  # noqa: E731
    async with gateway(folder, script, admission={**ONE, "max_waiting": 1}) as running:
        tasks = await queue(running, {"runs": {}, "waits": {}})
        rejected = await running.client.post("/v1/chat/completions", json={"model": MODEL, "messages": USER})
        assert rejected.status_code == 429
        assert int(rejected.headers["retry-after"]) >= 1
        assert rejected.json()["error"]["code"] == "rate_limit_exceeded"
        metrics = (await running.client.get("/metrics")).text
        assert f'gateway_generations_waiting{{model="{MODEL}"}} 1.0' in metrics
        assert f'gateway_generations_limit{{model="{MODEL}"}} 1.0' in metrics
        assert f'gateway_queue_refusals_total{{model="{MODEL}",reason="full"}} 1.0' in metrics
        gate.set()
        await asyncio.gather(*tasks)


async def test_each_of_several_choices_takes_a_turn(folder: Path) -> None:
    ids = ByteIds(folder).of("Hi")
    async with gateway(folder, lambda _: [EngineChunk(ids=ids, final=True)], admission=ONE) as running:
        answer = await running.client.post("/v1/chat/completions", json={"model": MODEL, "messages": USER, "n": 5})
        assert len(answer.json()["choices"]) == 5
        assert running.model.admission.totals().running == 0


async def test_fast_messages_go_before_the_callers_other_ones(folder: Path) -> None:
    gate = asyncio.Event()

    async def ask(name: str, **body: Any) -> Any:
        fields = {"model": MODEL, "max_tokens": 1, "system": f"name:{name}", "messages": USER, **body}
        return await running.client.post("/v1/messages", json=fields)

    async with gateway(folder, lambda _: [gate, EngineChunk(ids=[1], final=True)], admission=ONE) as running:
        tasks = []
        for place, (name, body) in enumerate({"a": {}, "b": {}, "c": {"speed": "fast"}}.items(), 1):
            tasks.append(asyncio.create_task(ask(name, **body)))
            await until(functools.partial(_are, running, place))
        gate.set()
        fast = (await asyncio.gather(*tasks))[-1]
        assert asked(running) == ["a", "c", "b"]
        assert "x-ignored-parameters" not in fast.headers
    async with gateway(folder) as running:
        ids = {"user_profile_id": "u", "workspace_id": "w", "service_tier": "auto"}
        assert (await ask("a", speed="fast", **ids)).headers["x-ignored-parameters"] == "speed"
        assert "x-ignored-parameters" not in (await ask("a", speed="standard")).headers
