"""Limits that gateways share by a real Redis, and what becomes of them while it is away."""

from __future__ import annotations

import asyncio
import hashlib
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import redis

from gateway.http.access import rate_limiter, redis_limits
from gateway.http.access.caller import Caller
from gateway.http.access.limits import LimitedError
from gateway.http.access.rate_limiter import RateLimiter, Reservation
from gateway.http.access.redis_limits import LEASE_S, RedisLimits
from gateway.http.access.shared_buckets import SharedBuckets
from gateway.settings import KeyLimits
from tests.app.harness import USER, says
from tests.app.harness import gateway as app_gateway
from tests.app.scripted import MODEL
from tests.store.redis_server import RedisServer
from tests.waiting import until


@pytest.fixture
def server(redis_server: RedisServer) -> RedisServer:
    with redis_server.client() as client:
        client.flushall()
    return redis_server


def gateway(server: RedisServer, gateways: int = 2) -> RateLimiter:
    return RateLimiter(SharedBuckets(), RedisLimits(server.url), gateways)


def who(**limits: int) -> Caller:
    return Caller("key:alice", "alice", limits=KeyLimits(**limits))


async def test_tokens_are_reserved_and_settled_by_any_gateway(server: RedisServer) -> None:
    one, two, alice = gateway(server), gateway(server), who(tokens_per_minute=6000)
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
    alice = who(tokens_per_minute=1000)
    await limits.admit(alice, alice.limits, "a")
    await limits.reserve(alice, alice.limits, "a", 600)
    for _ in range(2):
        await limits.settle(alice, alice.limits, "a", 500)
    standing = await limits.admit(alice, alice.limits, "b")
    assert 500 <= standing.tokens.left < 510
    await limits.close()


async def test_leases_of_a_gateway_that_has_died_end(server: RedisServer) -> None:
    dead, other, alice = gateway(server), gateway(server), who(in_flight=2, tokens_per_minute=1000)
    await dead.admit(alice, "a")
    await dead.reserve(alice, "a", 300)
    await other.admit(alice, "b")
    with pytest.raises(LimitedError, match="2 concurrent requests"):
        await other.admit(alice, "c")
    with server.client() as client:  # time passes for the lease that nobody renews
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
    one, alice = gateway(server), who(in_flight=2)
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
    one, alice = gateway(own_redis_server), who(requests_per_minute=600)
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
    one, alice = gateway(server), who(requests_per_minute=600, tokens_per_minute=600)
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
