"""Two endpoints under load, and one of them is killed, stopped, silent or replaced: what clients notice."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.paced.server import Mode, PacedServer
from tests.faults.stack import MODEL, Outcome, Stack, ask, stack

TOKENS = 60
_long = pytest.mark.long


async def load(running: Stack, count: int, **more: Any) -> tuple[list[Outcome], asyncio.Future[list[Outcome]]]:
    """Send so many requests; returns what becomes of them, and their end."""
    outcomes = [Outcome() for _ in range(count)]

    async def all_of_them() -> list[Outcome]:
        async with running.client() as client:
            return list(await asyncio.gather(*(ask(client, TOKENS, outcome, **more) for outcome in outcomes)))

    return outcomes, asyncio.ensure_future(all_of_them())


def check(outcomes: list[Outcome], *, failed_s: float) -> int:
    """Hold what must hold for every request; returns how many were broken off.

    Args:
        outcomes: of all requests.
        failed_s: seconds within which one that is broken off must have ended.
    """
    broken = 0
    for outcome in outcomes:
        assert not outcome.wrong, outcome
        if outcome.whole:
            assert (len(outcome.text), outcome.finish) == (TOKENS, "length")
            continue
        assert outcome.first is not None, f"it had no token, and failed: {outcome}"
        assert outcome.error is not None
        assert "transport" not in outcome.error
        assert set(outcome.error) == {"message", "type", "param", "code"}
        assert outcome.took < failed_s
        broken += 1
    return broken


async def served_again(running: Stack, triton: PacedServer, count: int = 1, *, seconds: float = 10) -> None:
    """Ask until an endpoint has had so many requests more; all of them are answered."""
    wanted = len(triton.told()["requests"]) + count
    async with running.client() as client:

        async def had_them() -> bool:
            assert (await ask(client, 2)).whole
            return len(triton.told()["requests"]) >= wanted

        await running.until(had_them, seconds)


@pytest.mark.parametrize(
    ("count", "transport", "workers"),
    [
        (40, "h2", 2),
        pytest.param(40, "grpcio", 1, marks=_long),
        *(pytest.param(200, transport, workers, marks=_long) for transport in ("h2", "grpcio") for workers in (1, 4)),
    ],
)
async def test_one_is_killed(tmp_path: Path, count: int, transport: str, workers: int) -> None:
    paced = {"slots": count // 4, "token_s": 0.02}  # so that half of the requests have no token yet
    with stack(tmp_path, workers=workers, paced=paced, triton={"transport": transport}) as running:
        first, _ = running.tritons
        outcomes, end = await load(running, count)
        await running.until(lambda: sum(outcome.first is not None for outcome in outcomes) >= count // 2)
        on_it = first.told()["running"]
        first.kill()
        broken = check(await end, failed_s=30)
        assert 0 < broken <= on_it
        first.start()
        await served_again(running, first)


@_long
@pytest.mark.parametrize("transport", ["h2", "grpcio"])
async def test_one_is_stopped(tmp_path: Path, transport: str) -> None:
    """Its connections stay, and nothing comes: as behind a network that swallows packets."""
    paced = {"slots": 10, "token_s": 0.02}
    with stack(
        tmp_path, paced=paced, triton={"transport": transport, "stall_s": 1}, timeouts={"between_tokens_s": 1.5}
    ) as running:
        first, _ = running.tritons
        outcomes, end = await load(running, 40)
        await running.until(lambda: sum(outcome.first is not None for outcome in outcomes) >= 20)
        first.signal(signal.SIGSTOP)
        try:
            broken = check(await end, failed_s=15)
            assert 0 < broken <= 10
        finally:
            first.signal(signal.SIGCONT)
        await served_again(running, first)


@_long
@pytest.mark.parametrize("workers", [1, 2, 4])
async def test_one_answers_health_and_gives_no_token(tmp_path: Path, workers: int) -> None:
    """Its requests go elsewhere, others do not come, and it is back when it is well."""
    with stack(tmp_path, workers=workers, triton={"stall_s": 1}) as running:
        zombie, well = running.tritons
        zombie.set("silent")
        began = time.monotonic()
        _, end = await load(running, 16)
        await running.until(lambda: len(zombie.told()["requests"]) > 0)
        assert check(await end, failed_s=1) == 0
        assert time.monotonic() - began < 20
        async with running.client() as client:
            lost = len(zombie.told()["requests"])
            for _ in range(20):
                assert (await ask(client, 2)).took < 5
            assert len(zombie.told()["requests"]) == lost
        zombie.set("well")
        assert well.told()["requests"]
        await served_again(running, zombie, 20, seconds=30)
        assert "ready" in await running.states()


@_long
async def test_one_fails_every_request(tmp_path: Path) -> None:
    """None is lost: those that it fails are answered by the other one, until it is well again."""
    with stack(tmp_path, workers=2) as running:
        broken, _ = running.tritons
        broken.set("failing")
        _, end = await load(running, 16)
        assert check(await end, failed_s=1) == 0
        async with running.client() as client:

            async def is_out() -> bool:
                assert (await ask(client, 2)).whole
                metrics = (await client.get("/metrics")).text
                return f'gateway_endpoint_ready{{endpoint="{broken.url}",model="{MODEL}"}} 0.0' in metrics

            await running.until(is_out, 15)
            asked = len(broken.told()["requests"])
            for _ in range(20):
                assert (await ask(client, 2)).whole
            assert len(broken.told()["requests"]) == asked
            broken.set("well")
            await served_again(running, broken, 11, seconds=30)


@_long
@pytest.mark.parametrize(("mode", "state"), [("failing in part", "failing"), ("garbled", "unreachable")])
async def test_one_fails_in_part_or_has_broken_health_replies(tmp_path: Path, mode: Mode, state: str) -> None:
    """None is lost, and the endpoint's state tells of it until it is well again."""
    with stack(tmp_path, workers=2) as running:
        first, _ = running.tritons
        first.set(mode)

        async def tells(found: list[str]) -> bool:
            if mode == "failing in part":  # broken health replies do not count while tokens come
                async with running.client() as client:
                    assert all([(await ask(client, 2)).whole for _ in range(8)])
            return await running.states() == found

        await running.until(lambda: tells([state, "ready"]), 20)
        _, end = await load(running, 40)
        assert check(await end, failed_s=1) == 0
        first.set("well")
        await running.until(lambda: tells(["ready", "ready"]), 180)  # a share of failures fades by half in a minute


@_long
async def test_an_engine_that_serves_probes_alone_is_ready_and_told_as_failing(tmp_path: Path) -> None:
    """As with an adapter that cannot be loaded: the engine works, and these requests do not."""
    with stack(tmp_path, 1) as running:
        running.tritons[0].set("failing but for probes")
        async with running.client() as client:

            async def is_told() -> bool:
                outcome = await ask(client, 2)
                assert outcome.status in {200, 500}
                assert outcome.error
                ready = await client.get("/health/ready")
                assert ready.status_code == 200
                return "fails 100% of its requests" in ready.json()["models"][MODEL].get("reason", "")

            await running.until(is_told, 20)
            told = (await client.get("/health/ready")).json()["models"][MODEL]
        assert (told["ready"], told["state"]) == (True, "failing")
        assert running.gateway.metric("gateway_model_state", 'state="failing"') == 1


@_long
async def test_clients_that_leave_take_neither_out(tmp_path: Path) -> None:
    with stack(tmp_path, workers=2) as running:
        _, end = await load(running, 16)
        async with running.client() as client:
            for _ in range(5):
                left = [asyncio.ensure_future(ask(client, TOKENS)) for _ in range(20)]
                await asyncio.wait(left, timeout=0.1)
                for each in left:
                    each.cancel()
                await asyncio.wait(left)
                assert await running.states() == ["ready", "ready"]
        assert check(await end, failed_s=1) == 0
        await running.until(lambda: not any(triton.told()["running"] for triton in running.tritons))
        assert not [line for line in running.gateway.log_lines() if "engine not ready" in line]


async def test_a_long_prefill_is_no_stall(tmp_path: Path) -> None:
    """A short request, as a probe is, is answered beside it: the engine is well."""
    with stack(tmp_path, triton={"stall_s": 0.3}, paced={"prefill_s": 0.5}) as running:
        outcomes, end = await load(running, 8, question="?" * 400)
        assert check(await end, failed_s=1) == 0
        asked = [each for triton in running.tritons for each in triton.told()["requests"]]
        assert len(asked) == len(set(asked)) == 8  # none was sent twice
        assert len(outcomes) == 8


@_long
async def test_where_all_are_slow_none_is_given_up(tmp_path: Path) -> None:
    """And their probes are as slow: there is nobody to go to."""
    with stack(tmp_path, triton={"stall_s": 0.5}, paced={"token_s": 0.2}) as running:
        for triton in running.tritons:
            triton.set("slow")
        _, end = await load(running, 2)
        await running.until(lambda: sum(triton.told()["probes"] for triton in running.tritons) >= 2)
        for triton in running.tritons:
            triton.set("well")
        assert check(await end, failed_s=1) == 0


@pytest.mark.parametrize("rounds", [2, pytest.param(20, marks=_long, id="long")])
async def test_rolling_restarts_lose_nothing(tmp_path: Path, rounds: int) -> None:
    """Each Triton ends as it does, serving what runs, and comes back; requests come all the while."""
    paced = {"slots": 16, "token_s": 0.005}
    with stack(tmp_path, workers=2, paced=paced) as running:
        stopping = asyncio.Event()
        outcomes: list[Outcome] = []

        async def client() -> None:
            async with running.client() as own:
                while not stopping.is_set():
                    outcomes.append(await ask(own, TOKENS))

        clients = [asyncio.ensure_future(client()) for _ in range(12)]
        for index in range(rounds):
            triton = running.tritons[index % 2]
            triton.set("leaving")  # its readiness goes first, as Kubernetes and Triton have it
            await asyncio.to_thread(triton.terminate)
            await asyncio.to_thread(triton.start)
            await running.until(lambda: _all_ready(running))
        stopping.set()
        await asyncio.gather(*clients)
        assert check(outcomes, failed_s=30) == 0
        assert len(outcomes) > 12 * rounds / 2


async def _all_ready(running: Stack) -> bool:
    return await running.states() == ["ready", "ready"]


@_long
async def test_a_worker_that_is_killed_takes_its_requests_out_of_the_counts(tmp_path: Path) -> None:
    with stack(tmp_path, workers=3, paced={"token_s": 0.1}) as running:
        _, end = await load(running, 12)
        await running.until(lambda: sum(len(triton.told()["requests"]) for triton in running.tritons) == 12)
        os.kill(running.gateway.children()[0], signal.SIGKILL)
        await end
        async with running.client() as client:
            metrics = (await client.get("/metrics")).text
        in_flight = [line for line in metrics.splitlines() if line.startswith("gateway_endpoint_requests_in_flight{")]
        assert {line.rsplit(" ", 1)[1] for line in in_flight} == {"0.0"}
