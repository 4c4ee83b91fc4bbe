"""The store in Redis, which gateways on several machines share.

Lua scripts do its work; Redis runs each as one transaction. Keys begin with KEYS[1], a hash tag, so that they live on
one node: ``:doc:`` and a member, a hash with data, version and the log's bytes; ``:log:`` and a member, a list;
``:turns``, the members by their last write; ``:sizes``, the bytes of each; ``:totals``, their sum and the last turn.
Documents and logs expire by themselves, and their size is taken off when their turn comes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, cast

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, NoPermissionError, ReadOnlyError, RedisError

from gateway.serving.store.interface import (
    BATCH,
    LARGEST,
    ConflictError,
    DocumentWrite,
    StoreBounds,
    StoredDocument,
    StoreFill,
    StoreFullError,
    StoreOutage,
    StoreUnavailableError,
    document_bytes,
    entries_bytes,
)

_WRITTEN: Final = 0
_CONFLICT: Final = -1
_FULL: Final = -2

_COMMON: Final = f"""
local function at(kind, member) return KEYS[1] .. kind .. (member or '') end

local function size(member) return tonumber(redis.call('HGET', at(':sizes'), member) or 0) end

local function remove(member)
    redis.call('UNLINK', at(':doc:', member), at(':log:', member))  -- first: allowed where memory is short
    redis.call('HINCRBY', at(':totals'), 'bytes', 0 - size(member))  -- Redis knows no -0
    redis.call('HDEL', at(':sizes'), member)
    redis.call('ZREM', at(':turns'), member)
end

-- whether there may be more to remove, 1 or 0, because none of these transactions takes long; how many were removed;
-- and the bytes that are left
local function trim(most)
    for removed = 0, {BATCH} do
        local oldest = redis.call('ZRANGE', at(':turns'), 0, 0)[1]
        local total = tonumber(redis.call('HGET', at(':totals'), 'bytes') or 0)
        if removed == {BATCH} then return {{1, removed, total}} end
        if not oldest then return {{0, removed, total}} end
        if total <= most and redis.call('EXISTS', at(':doc:', oldest)) == 1 then return {{0, removed, total}} end
        remove(oldest)
    end
end

local function written(member, bytes, age)
    redis.call('HINCRBY', at(':totals'), 'bytes', bytes - size(member))
    redis.call('HSET', at(':sizes'), member, bytes)
    redis.call('ZADD', at(':turns'), redis.call('HINCRBY', at(':totals'), 'turn', 1), member)
    redis.call('PEXPIRE', at(':doc:', member), age)
    redis.call('PEXPIRE', at(':log:', member), age)
end
"""

_PUT: Final = f"""{_COMMON}
local largest, most, age = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local versions, sizes = {{}}, {{}}
for first = 4, #ARGV, 4 do  -- member, data, expected version, bytes; all are looked at before the first is written
    local known = redis.call('HMGET', at(':doc:', ARGV[first]), 'version', 'log')
    local version, expected = tonumber(known[1] or 0), tonumber(ARGV[first + 2])
    if expected >= 0 and expected ~= version then return {{{_CONFLICT}, (first - 4) / 4}} end
    sizes[first] = tonumber(ARGV[first + 3]) + tonumber(known[2] or 0)
    if sizes[first] > largest then return {{{_FULL}}} end
    versions[#versions + 1] = version + 1
end
for first = 4, #ARGV, 4 do
    local member, version = ARGV[first], versions[first / 4]
    if version == 1 then redis.call('UNLINK', at(':log:', member)) end
    redis.call('HSET', at(':doc:', member), 'data', ARGV[first + 1], 'version', version)
    written(member, sizes[first], age)
end
return {{{_WRITTEN}, trim(most), unpack(versions)}}
"""

_APPEND: Final = f"""{_COMMON}
local largest, most, age = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local member, added = ARGV[4], tonumber(ARGV[5])
local doc, log = at(':doc:', member), at(':log:', member)
if redis.call('EXISTS', doc) == 0 then return {{{_CONFLICT}, 0}} end
local bytes = size(member) + added
if bytes > largest then return {{{_FULL}}} end
for first = 6, #ARGV, 1000 do  -- Lua's stack is small
    redis.call('RPUSH', log, unpack(ARGV, first, math.min(first + 999, #ARGV)))
end
redis.call('HINCRBY', doc, 'log', added)
written(member, bytes, age)
return {{{_WRITTEN}, trim(most), redis.call('LLEN', log)}}
"""

_DELETE: Final = f"""{_COMMON}
local there = redis.call('EXISTS', at(':doc:', ARGV[1]))
remove(ARGV[1])
return there
"""

_TRIM: Final = f"""{_COMMON}
redis.call('HINCRBY', at(':totals'), 'bytes', 0)  -- a Redis that takes no writes is found now
return trim(tonumber(ARGV[1]))
"""

_TAG: Final = "{triton-openai-gateway}"
_CONNECTIONS: Final = 32
_CONNECT_S: Final = 2.0
ANSWER_S: Final = 5.0


class RedisStore:
    """A `Store` in Redis; all users of one Redis have the same bounds."""

    def __init__(self, url: str, bounds: StoreBounds) -> None:
        """Configure the store; it connects when it is first used.

        Args:
            url: of Redis.
            bounds: of what it keeps.

        Raises:
            ValueError: the URL cannot be read.
        """
        self.fill = StoreFill()
        self._bounds = bounds
        self._age_ms = max(1, int(bounds.max_age_s * 1000))
        self._redis: Redis = Redis(
            connection_pool=BlockingConnectionPool.from_url(
                url,
                max_connections=_CONNECTIONS,
                timeout=ANSWER_S,
                socket_connect_timeout=_CONNECT_S,
                socket_timeout=ANSWER_S,
                retry=Retry(NoBackoff(), 0),  # a write whose response was lost must not be repeated
                protocol=2,  # with RESP3 releases from 8 on use connections that are closed
            )
        )
        self._put, self._append, self._delete, self._trim = map(
            self._redis.register_script, (_PUT, _APPEND, _DELETE, _TRIM)
        )
        self._outage = StoreOutage(_without_password(url))

    async def open(self) -> None:
        """Connect to Redis if it is reachable, and remove what exceeds the bounds.

        Raises:
            PermissionError: Redis rejects the gateway; the message is Redis's.
        """
        try:
            await self._trim_now()
        except (AuthenticationError, NoPermissionError, ReadOnlyError) as error:
            raise PermissionError(str(error)) from None
        except (RedisError, OSError) as error:
            self._outage.begin(error)

    async def put(self, owner: str, key: str, data: bytes, *, expected: int | None = None) -> int:
        """See `Store.put`."""
        (version,) = await self.put_all(owner, [DocumentWrite(key, data, expected)])
        return version

    async def put_all(self, owner: str, writes: Sequence[DocumentWrite]) -> list[int]:
        """See `Store.put_all`."""
        arguments: list[Any] = []
        for write in writes:
            size = document_bytes(owner, write.key, write.data)
            self._bounds.check(size)
            expected = -1 if write.expected is None else write.expected
            arguments += _member(owner, write.key), write.data, expected, size
        return await self._write(self._put, [write.key for write in writes], *arguments)

    async def get(self, owner: str, key: str) -> StoredDocument | None:
        """See `Store.get`."""
        async with self._guarded():
            data, version = cast("list[Any]", await self._redis.hmget(_at("doc", owner, key), ["data", "version"]))
        return None if data is None else StoredDocument(data, int(version))

    async def delete(self, owner: str, key: str) -> bool:
        """See `Store.delete`."""
        async with self._guarded():
            return bool(await self._delete(keys=[_TAG], args=[_member(owner, key)]))

    async def append(self, owner: str, key: str, entries: Sequence[bytes]) -> int:
        """See `Store.append`."""
        added = entries_bytes(entries)
        self._bounds.check(added)
        (count,) = await self._write(self._append, [key], _member(owner, key), added, *entries)
        return count

    async def entries(self, owner: str, key: str, after: int, limit: int) -> list[bytes]:
        """See `Store.entries`."""
        if limit < 1:
            return []
        async with self._guarded(), self._redis.pipeline(transaction=False) as both:
            both.exists(_at("doc", owner, key))  # Redis may have taken one of the two where its memory was short
            both.lrange(_at("log", owner, key), after, after + limit - 1)
            there, found = await both.execute()
        return found if there else []

    async def close(self) -> None:
        """See `Store.close`."""
        await self._redis.aclose(close_connection_pool=True)

    async def _write(self, script: Any, keys: Sequence[str], *args: Any) -> list[int]:
        """Run a script that writes documents with these keys; returns what it has made of them."""
        limits = min(self._bounds.max_bytes, LARGEST), self._bounds.max_bytes, self._age_ms
        async with self._guarded():
            result, *made = await script(keys=[_TAG], args=[*limits, *args])
            if result == _WRITTEN and self._noted(*made.pop(0)):
                await self._trim_now()
        if result == _CONFLICT:
            raise ConflictError(keys[made[0]])
        if result == _FULL:
            raise StoreFullError("the document with its log is larger than the limit of the store")
        return list(map(int, made))

    async def _trim_now(self) -> None:
        while self._noted(*await self._trim(keys=[_TAG], args=[self._bounds.max_bytes])):
            pass

    def _noted(self, more: int, removed: int, left: int) -> bool:
        """Note what a script has removed and left; returns whether there may be more to remove."""
        self.fill.removed += removed
        self.fill.bytes = left
        return bool(more)

    @asynccontextmanager
    async def _guarded(self) -> AsyncIterator[None]:
        try:
            yield
        except (RedisError, OSError) as error:
            self._outage.begin(error)
            raise StoreUnavailableError("the store cannot be used") from None
        self._outage.end()


def _member(owner: str, key: str) -> str:
    return f"{len(owner)}:{owner}:{key}"  # no key of one owner is that of another


def _at(kind: str, owner: str, key: str) -> str:
    return f"{_TAG}:{kind}:{_member(owner, key)}"


def _without_password(url: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2].partition('?')[0]}"
