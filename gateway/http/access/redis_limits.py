"""Limits in Redis, which gateways on several machines share.

A caller has three keys with one hash tag: its buckets, the leases of its requests in flight by their expiry, and the
reservation of each request. A lease is renewed while its request runs; the lease of a gateway that died expires.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, Final

from redis.asyncio import ConnectionPool
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, RedisError, ResponseError

from gateway.http.access.buckets import Level
from gateway.http.access.caller import Caller
from gateway.http.access.limits import RemainingLimits, tokens_not_left, too_many_in_flight, too_many_requests
from gateway.settings import KeyLimits

LEASE_S: Final = 30.0
_CONNECT_S: Final = 0.5
_ANSWER_S: Final = 1.0  # a request waits no longer before it is counted here instead

# KEYS: buckets, leases, reservations. ARGV: operation, id of the request, limits (0: none) of requests, tokens and in
# flight, tokens. Returns why not, or ''; then what is left of requests and tokens in thousandths.
_SCRIPT: Final = f"""
local buckets, leases, reserved = KEYS[1], KEYS[2], KEYS[3]
local operation, id = ARGV[1], ARGV[2]
local limits = {{requests = tonumber(ARGV[3]), tokens = tonumber(ARGV[4])}}
local most, tokens = tonumber(ARGV[5]), tonumber(ARGV[6])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function left(name)
    local limit = limits[name]
    if limit == 0 then return 0 end
    local known = redis.call('HMGET', buckets, name, name .. ':at')
    if not known[1] then return limit end
    return math.min(limit, tonumber(known[1]) + math.max(0, now - known[2]) * limit / 60000)
end

local function put(name, value)
    if limits[name] > 0 then
        redis.call('HSET', buckets, name, string.format('%.6f', value), name .. ':at', now)
        redis.call('PEXPIRE', buckets, 3600000)
    end
end

local function lease()
    redis.call('ZADD', leases, now + {int(LEASE_S * 1000)}, id)
    redis.call('PEXPIRE', leases, {int(LEASE_S * 1000)})
end

local function result(why)
    return {{why, math.floor(left('requests') * 1000), math.floor(left('tokens') * 1000)}}
end

if operation == 'admit' then
    local ended = redis.call('ZRANGEBYSCORE', leases, '-inf', now, 'LIMIT', 0, 100)
    if #ended > 0 then
        redis.call('ZREM', leases, unpack(ended))
        redis.call('HDEL', reserved, unpack(ended))
    end
    if most > 0 and redis.call('ZCARD', leases) >= most then return result('in_flight') end
    local requests = left('requests')
    if limits.requests > 0 then
        if requests < 1 then return result('requests') end
        put('requests', requests - 1)
    end
    lease()
elseif operation == 'reserve' then
    local have = left('tokens')
    if have < tokens then return result('tokens') end
    put('tokens', have - tokens)
    redis.call('HINCRBY', reserved, id, tokens)
    redis.call('PEXPIRE', reserved, 86400000)
elseif operation == 'settle' then  -- twice does no more than once
    redis.call('ZREM', leases, id)
    local promised = redis.call('HGET', reserved, id)
    if promised then
        redis.call('HDEL', reserved, id)
        put('tokens', math.min(limits.tokens, left('tokens') + promised - tokens))
    end
elseif operation == 'renew' then
    lease()
end
return result('')
"""
_SHA: Final = hashlib.sha1(_SCRIPT.encode(), usedforsecurity=False).hexdigest()  # Redis's name of a script


class RedisLimits:
    """Buckets and leases of callers in Redis.

    Calls raise ``RedisError`` or ``OSError`` where Redis is unreachable. Calls that come while others wait for a
    response are sent together: many requests at a time cost few round trips.
    """

    def __init__(self, url: str) -> None:
        """Describe it; connections are made when they are needed.

        Args:
            url: of Redis.

        Raises:
            ValueError: the URL cannot be read.
        """
        self._connection = ConnectionPool.from_url(
            url,
            socket_connect_timeout=_CONNECT_S,
            socket_timeout=_ANSWER_S,
            retry=Retry(NoBackoff(), 0),
            protocol=2,  # with RESP3 releases from 8 on use connections that are closed
        ).make_connection()  # type: ignore[no-untyped-call]
        self._waiting: list[tuple[Sequence[Any], asyncio.Future[Any]]] = []
        self._sender: asyncio.Task[None] | None = None

    async def admit(self, caller: Caller, limits: KeyLimits, lease: str) -> RemainingLimits:
        """Count a request as in flight; see ``SharedBuckets.admit``.

        Args:
            caller: the caller.
            limits: the caller's limits.
            lease: id of the request's lease.

        Raises:
            LimitedError: the request exceeds a limit.
        """
        why, standing = await self._run("admit", caller, limits, lease)
        if why == "in_flight" and limits.in_flight is not None:
            raise too_many_in_flight(caller, limits.in_flight)
        if why and standing.requests is not None:
            raise too_many_requests(caller, standing.requests)
        return standing

    async def reserve(self, caller: Caller, limits: KeyLimits, lease: str, tokens: int) -> Level | None:
        """Reserve the tokens that a request may use; see ``SharedBuckets.reserve``.

        Raises:
            LimitedError: the caller has too few tokens left.
        """
        why, standing = await self._run("reserve", caller, limits, lease, tokens)
        if why and standing.tokens is not None:
            raise tokens_not_left(caller, standing.tokens, tokens)
        return standing.tokens

    async def settle(self, caller: Caller, limits: KeyLimits, lease: str, used: int) -> None:
        """End a request, and return its unused tokens."""
        await self._run("settle", caller, limits, lease, used)

    async def renew(self, running: Iterable[tuple[Caller, str]]) -> None:
        """Renew the leases of running requests; without any, check that Redis responds."""
        calls = [self._call("renew", caller, KeyLimits(), lease, 0) for caller, lease in running]
        await asyncio.gather(self._ask(("PING",)), *map(self._ask, calls))

    async def close(self) -> None:
        """Close the connection."""
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.gather(self._sender, return_exceptions=True)
        await self._connection.disconnect()

    async def _run(
        self, operation: str, caller: Caller, limits: KeyLimits, lease: str, tokens: int = 0
    ) -> tuple[str, RemainingLimits]:
        found: Any = await self._ask(self._call(operation, caller, limits, lease, tokens))
        asked = limits.requests_per_minute, limits.tokens_per_minute
        levels = zip(asked, found[1:], strict=True)
        requests, left = (limit and Level(limit, int(each) / 1000) for limit, each in levels)
        return found[0].decode(), RemainingLimits(requests or None, left or None)

    def _call(self, operation: str, caller: Caller, limits: KeyLimits, lease: str, tokens: int) -> tuple[Any, ...]:
        tag = f"{{triton-openai-gateway:limits:{caller.id}}}"
        keys = f"{tag}:buckets", f"{tag}:leases", f"{tag}:reserved"
        most = limits.requests_per_minute or 0, limits.tokens_per_minute or 0, limits.in_flight or 0
        return ("EVALSHA", _SHA, len(keys), *keys, operation, lease, *most, tokens)

    def _ask(self, call: Sequence[Any]) -> asyncio.Future[Any]:
        """Send a command with all others that wait; returns its response to come."""
        answer = asyncio.get_running_loop().create_future()
        self._waiting.append((call, answer))
        if self._sender is None:
            self._sender = asyncio.create_task(self._send())
        return answer

    async def _send(self) -> None:
        """Send what waits, together, until nothing does."""
        answers: list[asyncio.Future[Any]] = []
        try:
            while self._waiting:
                calls, self._waiting = self._waiting, []
                answers = [answer for _, answer in calls]
                found = await self._answered([call for call, _ in calls])
                for answer, each in zip(answers, found, strict=True):
                    _give(answer, each)
        finally:
            self._sender = None
            for answer in answers:
                answer.cancel()  # without effect on those that have been given

    async def _answered(self, calls: Sequence[Sequence[Any]]) -> Sequence[Any]:
        """The responses to commands, each of which may be an error."""
        known = self._connection.is_connected
        try:
            try:
                found = await self._exchange(calls)
            except RedisConnectionError:
                if not known:
                    raise
                found = await self._exchange(calls)  # Redis has closed a connection that was at rest
            if any(isinstance(each, NoScriptError) for each in found):  # a new Redis lacks the script and ran none
                await self._exchange([("SCRIPT LOAD", _SCRIPT)])
                found = await self._exchange(calls)
        except (RedisError, OSError) as error:
            return [error] * len(calls)
        return found

    async def _exchange(self, calls: Sequence[Sequence[Any]]) -> list[Any]:
        connection = self._connection
        found: list[Any] = []
        try:
            await connection.connect()
            await connection.send_packed_command(connection.pack_commands(calls))
            while len(found) < len(calls):
                found.append(await _response(connection))
        finally:
            if len(found) < len(calls):  # a late reply would be taken for the reply to another command
                await connection.disconnect(nowait=True)
        return found


async def _response(connection: AbstractConnection) -> Any:
    try:
        return await connection.read_response()
    except ResponseError as error:
        return error


def _give(answer: asyncio.Future[Any], found: Any) -> None:
    """Hand a response over, unless its caller is gone."""
    if answer.done():
        return
    if isinstance(found, Exception):
        answer.set_exception(found)
    else:
        answer.set_result(found)
