"""The store in Redis, which gateways on several machines share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, cast

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, NoPermissionError, ReadOnlyError, RedisError

from gateway.store.bounds import LARGEST, Bounds, document_bytes, entries_bytes
from gateway.store.interface import ConflictError, Document, Fill, StoreFullError, StoreUnavailableError, Write
from gateway.store.outage import Outage
from gateway.store.redis_scripts import APPEND, CONFLICT, DELETE, FULL, PUT, TRIM, WRITTEN

_TAG: Final = "{triton-openai-gateway}"
_CONNECTIONS: Final = 32
_CONNECT_S: Final = 2.0
ANSWER_S: Final = 5.0


class RedisStore:
    """A `Store` in Redis; all that use one have the same bounds."""

    def __init__(self, url: str, bounds: Bounds) -> None:
        """Describe it; connections are made when they are needed.

        Args:
            url: of Redis.
            bounds: of what it keeps.

        Raises:
            ValueError: the URL cannot be read.
        """
        self.fill = Fill()
        self._bounds = bounds
        self._age_ms = max(1, int(bounds.max_age_s * 1000))
        self._redis: Redis = Redis(
            connection_pool=BlockingConnectionPool.from_url(
                url,
                max_connections=_CONNECTIONS,
                timeout=ANSWER_S,
                socket_connect_timeout=_CONNECT_S,
                socket_timeout=ANSWER_S,
                retry=Retry(NoBackoff(), 0),  # a write that took place, and whose answer was lost, must not be repeated
                protocol=2,  # with RESP3 releases from 8 on use connections that are closed
            )
        )
        self._put, self._append, self._delete, self._trim = map(
            self._redis.register_script, (PUT, APPEND, DELETE, TRIM)
        )
        self._outage = Outage(_without_password(url))

    async def open(self) -> None:
        """Reach Redis, and remove what is too much; one that is away may come later.

        Raises:
            PermissionError: it is there and refuses the gateway; the message is Redis's.
        """
        try:
            await self._trim_now()
        except (AuthenticationError, NoPermissionError, ReadOnlyError) as error:
            raise PermissionError(str(error)) from None
        except (RedisError, OSError) as error:
            self._outage.begin(error)

    async def put(self, owner: str, key: str, data: bytes, *, expected: int | None = None) -> int:
        """See `Store.put`."""
        (version,) = await self.put_all(owner, [Write(key, data, expected)])
        return version

    async def put_all(self, owner: str, writes: Sequence[Write]) -> list[int]:
        """See `Store.put_all`."""
        arguments: list[Any] = []
        for write in writes:
            size = document_bytes(owner, write.key, write.data)
            self._bounds.check(size)
            expected = -1 if write.expected is None else write.expected
            arguments += _member(owner, write.key), write.data, expected, size
        return await self._write(self._put, [write.key for write in writes], *arguments)

    async def get(self, owner: str, key: str) -> Document | None:
        """See `Store.get`."""
        async with self._guarded():
            data, version = cast("list[Any]", await self._redis.hmget(_at("doc", owner, key), ["data", "version"]))
        return None if data is None else Document(data, int(version))

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

    async def entries(self, owner: str, key: str, after: int, most: int) -> list[bytes]:
        """See `Store.entries`."""
        if most < 1:
            return []
        async with self._guarded(), self._redis.pipeline(transaction=False) as both:
            both.exists(_at("doc", owner, key))  # Redis may have taken one of the two where its memory was short
            both.lrange(_at("log", owner, key), after, after + most - 1)
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
            if result == WRITTEN and self._noted(*made.pop(0)):
                await self._trim_now()
        if result == CONFLICT:
            raise ConflictError(keys[made[0]])
        if result == FULL:
            raise StoreFullError("the document with its log is larger than the store may be")
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
