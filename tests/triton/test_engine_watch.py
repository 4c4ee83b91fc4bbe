"""An engine that falls silent behind a Triton whose health checks go on answering."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from scripted_triton import ScriptedTriton, ask, play, tokens

from gateway.triton import TritonBackend
from gateway.triton.transports import TransportName
from gateway.triton.triton_backend import HealthChecks
from tests.waiting import until

STALL_S = 0.1


class Stuck:
    """A request whose engine responded once, when it was made."""

    prompt_tokens = 1

    def __init__(self) -> None:
        self.at = time.perf_counter()

    def lost(self) -> None: ...

    def responded_at(self) -> float | None:
        return self.at


class Situation:
    """A backend over a scripted Triton, the states that its watch told, and whether it was ready as each was told."""

    def __init__(self, server: ScriptedTriton, transport: TransportName, stall_s: float) -> None:
        self.server = server
        self.backend = TritonBackend(
            server.url, "ensemble", transport=transport, health=HealthChecks(600, stall_s=stall_s)
        )
        self.states: list[str] = []
        self.ready: list[bool] = []
        self.backend.health.listen(self._note)

    def _note(self, state: str) -> None:
        self.states.append(state)
        self.ready.append(self.backend.status.ready)

    async def until(self, state: str) -> None:
        await until(lambda: state in self.states)

    def stall(self) -> Stuck:
        stuck = Stuck()
        self.backend.health.began(stuck)
        return stuck

    async def stalled(self) -> Stuck:
        """The request over which the engine is found silent."""
        self.server.script = _silence
        stuck = self.stall()
        await self.until("stalled")
        return stuck


Start = Callable[..., Any]


@pytest.fixture
async def start(transport_name: TransportName) -> AsyncIterator[Start]:
    async with ScriptedTriton() as server:
        backends = []

        async def begin(stall_s: float = STALL_S, *, decoupled: bool = True) -> Situation:
            for config in server.configs.values():
                config.model_transaction_policy.decoupled = decoupled
            situation = Situation(server, transport_name, stall_s)
            backends.append(situation.backend)
            await situation.backend.start()
            await situation.backend.wait_ready(10)
            server.requests.clear()
            return situation

        yield begin
        for backend in backends:
            await backend.close()


async def _silence(*_: Any) -> AsyncIterator[Any]:
    await asyncio.Event().wait()
    yield


async def test_an_engine_that_gives_a_token_is_well_again(start: Start) -> None:
    situation = await start()
    go_on = asyncio.Event()

    async def when_told(*_: Any) -> AsyncIterator[Any]:
        await go_on.wait()
        yield tokens(7, final=True)

    situation.server.script = when_told
    situation.stall()
    await situation.until("suspect")
    assert "no running generation has received a token" in situation.backend.health.reason
    assert situation.backend.status.ready, "only a probe takes it out"
    go_on.set()
    await situation.until("well")
    assert [token async for chunk in situation.backend.engine.generate(ask()) for token in chunk.ids] == [7]


async def test_probes_do_not_pile_up(start: Start) -> None:
    situation = await start()
    running = most = 0

    async def silence(*_: Any) -> AsyncIterator[Any]:
        nonlocal running, most
        running += 1
        most = max(most, running)
        try:
            await asyncio.Event().wait()
            yield
        finally:
            running -= 1

    situation.server.script = silence
    begun = time.perf_counter()
    situation.stall()
    await situation.server.until(lambda: len(situation.server.cancelled) >= 3)
    took = time.perf_counter() - begun
    assert took >= STALL_S * (1 + 1 + 2 + 4) - 0.05, "each has twice as long as the one before it"
    assert most <= 2, "one that is being cancelled, and the next"


async def test_a_probe_that_waits_behind_requests_of_other_clients_is_no_stall(start: Start) -> None:
    situation = await start(1, decoupled=False)
    counts = itertools.count()
    enough = asyncio.Event()

    def completed() -> int:
        count = next(counts)
        if count == 8:
            enough.set()
        return min(count, 8)

    situation.server.script, situation.server.completed = _silence, completed
    situation.stall()
    await asyncio.wait_for(enough.wait(), 10)  # twice as long as a probe may take
    assert situation.states == ["suspect"]
    await situation.until("stalled")


async def test_a_response_on_any_request_ends_doubt(start: Start) -> None:
    situation = await start()
    stuck = await situation.stalled()
    stuck.at = time.perf_counter()
    await situation.until("well")
    await situation.server.until(lambda: len(situation.server.cancelled) == len(situation.server.requests))


async def test_another_engine_begins_well(start: Start) -> None:
    situation = await start()
    stuck = await situation.stalled()
    situation.backend.health.ended(stuck)
    situation.server.script = lambda *_: play(tokens(7, final=True))
    await situation.server.stop()
    await situation.until("well")
    assert situation.ready == [True, False, False], "it was never ready between the stall and the loss"
    assert "one token" not in situation.backend.status.reason
    await situation.server.start()
    await situation.backend.wait_ready(10)
    assert situation.backend.engine


async def test_switched_off_it_asks_nothing(start: Start) -> None:
    situation = await start(0)
    for _ in range(5):
        situation.backend.health.ended(situation.stall(), given_up=True)
    situation.stall()
    assert [token async for chunk in situation.backend.engine.generate(ask()) for token in chunk.ids] == [7]
    assert (situation.states, len(situation.server.requests)) == ([], 1)
