"""Limits: those that gateways share by a real Redis, and those in memory; what is unused comes back."""

from __future__ import annotations

import asyncio
import hashlib
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from gateway.http.access import rate_limiter, redis_limits, shared_buckets
from gateway.http.access.buckets import Level
from gateway.http.access.caller import Caller
from gateway.http.access.limits import LimitedError, RemainingLimits, duration
from gateway.http.access.rate_limiter import RateLimiter, Reservation
from gateway.http.access.redis_limits import LEASE_S, RedisLimits
from gateway.http.access.shared_buckets import SharedBuckets, size_of
from gateway.settings import KeyLimits
from gateway.text.shared_memory import create_memory
from tests.app.harness import USER, says
from tests.app.harness import gateway as app_gateway
from tests.app.scripted import MODEL
from tests.store.redis_server import RedisServer
from tests.waiting import until


def refusal(call: Callable[[], object]) -> LimitedError | None:
    """What a call raises; None where it is let in."""
    try:
        call()
    except LimitedError as error:
        return error
    return None


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def who(name: str = "a", **limits: int) -> Caller:
    return Caller(f"key:{name}", name, limits=KeyLimits(**limits))


steps = st.lists(st.tuples(st.floats(0, 30), st.integers(1, 12)), min_size=1, max_size=60)


@given(limit=st.integers(1, 40), steps=steps)
def test_no_window_has_more_than_a_minutes_number_and_its_rate(limit: int, steps: Sequence[tuple[float, int]]) -> None:
    clock, limits = Clock(), KeyLimits(requests_per_minute=limit)
    buckets = SharedBuckets(clock=clock)
    taken: list[float] = []
    for pause, tries in steps:
        clock.now += pause
        for _ in range(tries):
            rejected = refusal(lambda: buckets.admit(who(), limits))
            if rejected is None:
                taken.append(clock.now)
            else:
                assert rejected.retry_s
    for first, begin in enumerate(taken):
        for last in range(first, len(taken)):
            assert last - first + 1 <= limit + (taken[last] - begin) * limit / 60 + 1e-6


@given(limit=st.integers(1, 1000), steps=steps)
def test_who_waits_as_long_as_told_is_let_in(limit: int, steps: Sequence[tuple[float, int]]) -> None:
    clock, limits = Clock(), KeyLimits(requests_per_minute=limit)
    buckets = SharedBuckets(clock=clock)
    for pause, tries in steps:
        clock.now += pause
        for _ in range(tries):
            rejected = refusal(lambda: buckets.admit(who(), limits))
            if rejected is not None:
                clock.now += int(rejected.headers()["retry-after-ms"]) / 1000
                buckets.admit(who(), limits)


@given(limit=st.integers(10, 10_000), costs=st.lists(st.tuples(st.integers(1, 400), st.integers(0, 800)), max_size=40))
def test_what_is_settled_is_what_was_used(limit: int, costs: Sequence[tuple[int, int]]) -> None:
    """While no time passes: the level is the limit less all that was used, also where that is below nothing."""
    clock, limits = Clock(), KeyLimits(tokens_per_minute=limit)
    buckets = SharedBuckets(clock=clock)
    used = 0
    for reserve, use in costs:
        buckets.admit(who(), limits)
        if refusal(lambda reserve=reserve: buckets.reserve(who(), limits, reserve)) is None:  # type: ignore[misc]
            buckets.settle(who(), limits, reserve - use)
            used += use
        else:
            assert reserve > limit - used
            buckets.settle(who(), limits, 0)
        assert _left(buckets, limits) == pytest.approx(limit - used)


def _left(buckets: SharedBuckets, limits: KeyLimits) -> float:
    standing = buckets.admit(who(), limits)
    buckets.settle(who(), limits, 0)
    return standing.tokens.left


def test_a_debt_is_paid_by_time() -> None:
    clock, limits = Clock(), KeyLimits(tokens_per_minute=60)
    buckets = SharedBuckets(clock=clock)
    buckets.admit(who(), limits)
    buckets.reserve(who(), limits, 10)
    buckets.settle(who(), limits, 10 - 100)
    with pytest.raises(LimitedError) as rejected:
        buckets.reserve(who(), limits, 1)
    assert rejected.value.retry_s == pytest.approx(41)
    clock.now += 41
    buckets.reserve(who(), limits, 1)


def test_in_flight_counts_all_processes_and_forgets_one_that_has_died() -> None:
    limits = KeyLimits(in_flight=3)
    descriptor = create_memory(size_of(2))
    one, two = (SharedBuckets(2, row, descriptor) for row in range(2))
    for buckets in (one, two, two):
        buckets.admit(who(), limits)
    for buckets in (one, two):
        with pytest.raises(LimitedError):
            buckets.admit(who(), limits)
    one.admit(who("b"), limits)  # another caller's are its own
    one.clear(1)
    for _ in range(2):
        one.admit(who(), limits)
    with pytest.raises(LimitedError):
        one.admit(who(), limits)
    os.close(descriptor)


def test_any_number_of_callers_come_and_go() -> None:
    """Slots are used again; where there is none, callers share one, and limits hold."""
    clock, limits = Clock(), KeyLimits(requests_per_minute=1)
    buckets = SharedBuckets(clock=clock)
    for round_ in range(3):
        let_in = 0
        for number in range(3000):
            one = who(f"{round_}-{number}")
            if refusal(lambda one=one: buckets.admit(one, limits)) is None:  # type: ignore[misc]
                buckets.settle(one, limits, 0)
                let_in += 1
        assert let_in > 2900
        clock.now += 120


_COUNT = 400


def _race(descriptor: int, row: int, found: multiprocessing.Queue[int]) -> None:
    buckets = SharedBuckets(4, row, descriptor)
    limits = KeyLimits(requests_per_minute=_COUNT, tokens_per_minute=10**6)
    let_in = 0
    for _ in range(_COUNT):
        if refusal(lambda: buckets.admit(who(), limits)) is None:
            buckets.reserve(who(), limits, 7)
            buckets.settle(who(), limits, 4)
            let_in += 1
    found.put(let_in)


def test_processes_that_race_are_let_in_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_buckets, "_PATIENCE_S", 10.0)  # one that is not scheduled may hold the lock for long
    descriptor = create_memory(size_of(4))
    context = multiprocessing.get_context("fork")
    found: multiprocessing.Queue[int] = context.Queue()  # type: ignore[assignment]
    begun = time.monotonic()
    racers = [context.Process(target=_race, args=(descriptor, row, found)) for row in range(4)]
    for racer in racers:
        racer.start()
    let_in = sum(found.get(timeout=60) for _ in racers)
    for racer in racers:
        racer.join()
    refilled = (time.monotonic() - begun) * _COUNT / 60
    assert _COUNT <= let_in <= _COUNT + refilled + 1
    left = SharedBuckets(4, 0, descriptor).admit(who(), KeyLimits(tokens_per_minute=10**6)).tokens
    assert 10**6 - 3 * let_in <= left.left
    os.close(descriptor)


def _hold(descriptor: int, held: multiprocessing.Queue[int]) -> None:
    buckets = SharedBuckets(2, 1, descriptor)
    with buckets._slot("key:a"):
        held.put(1)
        signal.pause()


def test_a_process_that_is_stopped_with_a_lock_holds_nobody_up() -> None:
    descriptor = create_memory(size_of(2))
    context = multiprocessing.get_context("fork")
    held: multiprocessing.Queue[int] = context.Queue()  # type: ignore[assignment]
    holder = context.Process(target=_hold, args=(descriptor, held))
    holder.start()
    held.get(timeout=30)
    buckets = SharedBuckets(2, 0, descriptor)
    buckets.admit(who(), KeyLimits(requests_per_minute=1))
    with pytest.raises(LimitedError):
        buckets.admit(who(), KeyLimits(requests_per_minute=1))
    holder.kill()
    holder.join()
    os.close(descriptor)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0s"), (0.25, "250ms"), (0.0001, "1ms"), (1, "1s"), (1.5, "1.5s"), (360, "6m0s"), (3661.5, "1h1m1.5s")],
)
def test_durations_are_written_as_openai_does(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown


def test_a_debt_is_shown_as_nothing_left() -> None:
    headers = dict(RemainingLimits(tokens=Level(600, -60.0)).headers())
    assert headers["x-ratelimit-remaining-tokens"] == "0"
    assert headers["x-ratelimit-reset-tokens"] == "1m6s"


@pytest.fixture
def server(redis_server: RedisServer) -> RedisServer:
    with redis_server.client() as client:
        client.flushall()
    return redis_server


def gateway(server: RedisServer, gateways: int = 2) -> RateLimiter:
    return RateLimiter(SharedBuckets(), RedisLimits(server.url), gateways)


async def test_tokens_are_reserved_and_settled_by_any_gateway(server: RedisServer) -> None:
    one, two, alice = gateway(server), gateway(server), who("alice", tokens_per_minute=6000)
    await one.admit(alice, "a")
    level, reserved = await one.reserve(alice, "a", 4000)
    assert 2000 <= level.left < 2050
    assert reserved == Reservation(shared=4000)
    await two.admit(alice, "b")
    with pytest.raises(LimitedError) as rejected:
        await two.reserve(alice, "b", 4000)
    assert rejected.value.retry_s == pytest.approx(20, abs=1)
    one.settle(alice, "a", reserved, 5000)  # more than it had reserved
    await one.close()
    standing = await two.admit(alice, "c")
    assert 1000 <= standing.tokens.left < 1100
    await two.close()


async def test_a_request_is_settled_once(server: RedisServer) -> None:
    limits = RedisLimits(server.url)
    alice = who("alice", tokens_per_minute=1000)
    await limits.admit(alice, alice.limits, "a")
    await limits.reserve(alice, alice.limits, "a", 600)
    for _ in range(2):
        await limits.settle(alice, alice.limits, "a", 500)
    standing = await limits.admit(alice, alice.limits, "b")
    assert 500 <= standing.tokens.left < 510
    await limits.close()


async def test_leases_of_a_gateway_that_has_died_end(server: RedisServer) -> None:
    dead, other, alice = gateway(server), gateway(server), who("alice", in_flight=2, tokens_per_minute=1000)
    await dead.admit(alice, "a")
    await dead.reserve(alice, "a", 300)
    await other.admit(alice, "b")
    with pytest.raises(LimitedError, match="2 concurrent requests"):
        await other.admit(alice, "c")
    with server.client() as client:  # as if the time of the lease had passed
        leases = "{triton-openai-gateway:limits:key:alice}:leases"
        client.zincrby(leases, -LEASE_S * 1000, "a")
        await other.admit(alice, "c")
        assert client.zrange(leases, 0, -1) == [b"b", b"c"]
        assert client.hkeys("{triton-openai-gateway:limits:key:alice}:reserved") == []
    await dead.close()
    await other.close()


async def test_running_requests_renew_their_leases(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limiter, "_RENEW_S", 0.0)
    monkeypatch.setattr(rate_limiter, "_LOOK_S", 0.01)
    one, alice = gateway(server), who("alice", in_flight=2)
    await one.admit(alice, "a")
    with server.client() as client:
        leases = "{triton-openai-gateway:limits:key:alice}:leases"
        client.zincrby(leases, -20_000, "a")
        before = float(str(client.zscore(leases, "a")))
        one.open()
        await until(lambda: float(str(client.zscore(leases, "a"))) >= before + 19_000)
    await one.close()


async def test_a_redis_that_does_not_answer_holds_nobody_up(
    own_redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rate_limiter, "_LOOK_S", 0.05)
    monkeypatch.setattr(redis_limits, "_ANSWER_S", 0.3)
    one, alice = gateway(own_redis_server), who("alice", requests_per_minute=600)
    one.open()
    await one.admit(alice, "before")
    own_redis_server.kill(signal.SIGSTOP)
    begun = time.monotonic()
    standings = await asyncio.gather(*(one.admit(alice, f"{number}") for number in range(100)))
    assert time.monotonic() - begun < 5  # they wait together
    assert {standing.requests.limit for standing in standings if standing.requests} == {300}  # its part
    begun = time.monotonic()
    for number in range(100):
        await one.admit(alice, f"more-{number}")
    assert time.monotonic() - begun < 1  # and once only
    own_redis_server.kill(signal.SIGCONT)
    shared = await one.admit(alice, "after")
    while shared.requests is not None and shared.requests.limit != 600:
        await asyncio.sleep(0.01)
        shared = await one.admit(alice, "after")
    await one.close()


async def test_a_connection_that_redis_has_closed_is_no_outage(
    server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    one, alice = gateway(server), who("alice", requests_per_minute=600, tokens_per_minute=600)
    await one.admit(alice, "a")
    with server.client() as client:
        client.client_kill_filter(_type="normal", skipme=True)
    await one.reserve(alice, "a", 100)
    one.settle(alice, "a", Reservation(shared=100), 40)
    await until(lambda: not one._tasks)
    standing = await one.admit(alice, "b")
    assert (standing.requests.limit, standing.tokens.limit) == (600, 600)  # not a part
    assert 598 <= standing.requests.left < 599.5
    assert 560 <= standing.tokens.left < 570
    assert caplog.text == ""
    await one.close()


async def test_a_token_of_an_answer_asks_nothing_of_redis(server: RedisServer, folder: Path) -> None:
    limits = {"requests_per_minute": 600, "tokens_per_minute": 60_000, "in_flight": 5}
    key = {"name": "alice", "hash": f"sha256:{hashlib.sha256(b'key').hexdigest()}", "limits": limits}
    auth = {"keys": [key], "redis_url": server.url}
    async with app_gateway(folder, says(folder, "x" * 200), auth=auth) as running:
        with server.client() as client:
            for tokens in (1, 150):
                client.config_resetstat()
                body = {"model": MODEL, "messages": USER, "max_tokens": tokens, "stream": True}
                headers = {"Authorization": "Bearer key"}
                answer = await running.client.post("/v1/chat/completions", json=body, headers=headers)
                assert answer.text.count('"content":"x"') == tokens
                assert 60_000 - 400 < int(answer.headers["x-ratelimit-remaining-tokens"]) < 60_000
                await until(lambda: _calls(client) == 3)  # admitted, reserved, settled


def _calls(client: redis.Redis) -> int:
    stats: Any = client.info("commandstats")
    return int(stats.get("cmdstat_evalsha", {}).get("calls", 0))
