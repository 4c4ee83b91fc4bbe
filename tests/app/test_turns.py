"""Requests that wait for their turn, over a scripted engine: priorities, tiers, and what is told of them."""

from __future__ import annotations

import asyncio
import functools
from pathlib import Path
from typing import Any

import pytest

from gateway.generation import EngineChunk
from tests.app.harness import USER, Gateway, gateway
from tests.app.scripted import MODEL, ByteIds
from tests.waiting import until

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
