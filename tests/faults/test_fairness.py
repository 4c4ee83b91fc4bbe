"""A flood of one key and a polite client with another, before Tritons with eight slots.

They are doubles with a fixed time for a token.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import signal
import statistics
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.faults.stack import Outcome, Stack, ask, stack

KEYS = {name: f"sk-{name}-0123456789abcdef" for name in ("flood", "polite")}
AUTH = {
    "keys": [{"name": name, "hash": "sha256:" + hashlib.sha256(key.encode()).hexdigest()} for name, key in KEYS.items()]
}
pytestmark = pytest.mark.long
TOKENS = 40
SLOTS = 8
TOKEN_S = 0.02


def key_of(name: str) -> dict[str, Any]:
    return {"headers": {"Authorization": f"Bearer {KEYS[name]}"}}


async def polite(client: httpx.AsyncClient, times: int, pause_s: float = 0, **more: Any) -> list[Outcome]:
    """A client that asks, reads, pauses and asks again: a tenth of what there is room for, and less."""
    seen = []
    for _ in range(times):
        await asyncio.sleep(pause_s)
        seen.append(await ask(client, TOKENS, **key_of("polite"), **more))
    return seen


def p50(outcomes: list[Outcome]) -> float:
    return statistics.median(outcome.took for outcome in outcomes)


def fair_stack(tmp_path: Path, workers: int, **admission: Any) -> Any:
    return stack(
        tmp_path, 1, workers=workers, auth=AUTH, model={"admission": {"max_running": SLOTS, **admission}},
        paced={"slots": SLOTS, "token_s": TOKEN_S},
    )  # fmt: skip


@contextlib.asynccontextmanager
async def flood(running: Stack, count: int, tokens: int = TOKENS, **more: Any) -> AsyncIterator[list[Outcome]]:
    """So many connections that always have a request; what became of those that have ended.

    The gateway ends with it: httpx leaves connections open where hundreds of its requests are cancelled.
    """
    seen: list[Outcome] = []
    over = asyncio.Event()

    async def one(client: httpx.AsyncClient) -> None:
        while not over.is_set():
            outcome = await ask(client, tokens, **key_of("flood"), **more)
            if not over.is_set():
                seen.append(outcome)
            if outcome.status == 429:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(over.wait(), 1)

    async with running.client() as client:
        left = {asyncio.ensure_future(one(client)) for _ in range(count)}
        try:
            yield seen
        finally:
            over.set()
            while left:  # notice, drain, error events: each signal skips to the next
                running.gateway.signal(signal.SIGTERM)
                _, left = await asyncio.wait(left, timeout=0.5)


@pytest.mark.parametrize(("workers", "pause_s"), [(1, 0), (4, 0.4)])
async def test_a_polite_client_does_not_notice_a_flood(tmp_path: Path, workers: int, pause_s: float) -> None:
    with fair_stack(tmp_path, workers) as running:
        async with running.client() as client:
            idle = await polite(client, 3)
            async with flood(running, 200) as outcomes:
                await running.until(lambda: _waiting(running) >= 100)
                flooded = await polite(client, 9, pause_s)
        assert all(outcome.whole and not outcome.wrong for outcome in [*idle, *flooded])
        assert p50(flooded) < 1.5 * p50(idle), (p50(flooded), p50(idle))
        assert all(outcome.whole and not outcome.wrong for outcome in outcomes)
        assert running.tritons[0].told()["most"] <= SLOTS + workers - 1  # two that look at once may each let one run


@pytest.mark.parametrize(
    ("count", "body", "slower_s"),
    [
        pytest.param(25, {"n": 8}, 0.5 * TOKENS * TOKEN_S, id="eight-choices"),
        pytest.param(200, {"tokens": 10 * TOKENS}, 10.5 * TOKENS * TOKEN_S, id="longer-answers"),
    ],
)
async def test_a_polite_client_waits_for_one_turn_of_other_floods_at_most(
    tmp_path: Path, count: int, body: dict[str, Any], slower_s: float
) -> None:
    with fair_stack(tmp_path, 1) as running:
        async with running.client() as client:
            idle = await polite(client, 3)
            async with flood(running, count, **body) as outcomes:
                await running.until(lambda: _waiting(running) >= 100)
                flooded = await polite(client, 5, 0.4)
        assert all(outcome.whole and not outcome.wrong for outcome in [*idle, *flooded])
        waits = [outcome.took - p50(idle) for outcome in flooded]
        assert (statistics.median(waits) if "n" in body else max(waits)) < slower_s, waits
        assert all(outcome.whole for outcome in outcomes)


def _waiting(running: Stack) -> float:
    return running.gateway.metric("gateway_generations_waiting")


async def test_ten_times_overload_costs_no_capacity(tmp_path: Path) -> None:
    """The queue is bounded in time, so that those who are served are served soon; others are told when to come."""
    with fair_stack(tmp_path, 2, max_wait_s=3, max_waiting=200) as running:
        async with flood(running, 10 * SLOTS) as outcomes:
            await running.until(lambda: _waiting(running) >= 5 * SLOTS)
            given = running.gateway.metric("gateway_completion_tokens_total")
            began = asyncio.get_running_loop().time()
            await asyncio.sleep(10)
            took = asyncio.get_running_loop().time() - began
            goodput = (running.gateway.metric("gateway_completion_tokens_total") - given) / took
            ended = list(outcomes)
            page = running.gateway.metrics()
            waited = running.gateway.metric("gateway_queue_seconds_count", page=page)
            late = waited - running.gateway.metric("gateway_queue_seconds_bucket", 'le="5.0"', page)
        assert goodput > 0.85 * SLOTS / TOKEN_S  # a tenth less, and what one late answer is in so short a time
        assert not late  # with some room for a machine that is busy
        rejected = [outcome for outcome in ended if not outcome.whole]
        for outcome in rejected:
            assert outcome.status == 429
            assert outcome.error is not None
            assert outcome.error["code"] == "rate_limit_exceeded"
