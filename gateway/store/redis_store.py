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
from gateway.store.interface import ConflictError, Document, StoreFullError, StoreUnavailableError
from gateway.store.outage import Outage
from gateway.store.redis_scripts import APPEND, CONFLICT, DELETE, FULL, PUT, TRIM

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
            await self._trim_on(more=True)
        except (AuthenticationError, NoPermissionError, ReadOnlyError) as error:
            raise PermissionError(str(error)) from None
        except (RedisError, OSError) as error:
            self._outage.begin(error)

    async def put(self, owner: str, key: str, data: bytes, *, expected: int | None = None) -> int:
        """See `Store.put`."""
        size = document_bytes(owner, key, data)
        self._bounds.check(size)
        return await self._write(
            self._put, _member(owner, key), data, -1 if expected is None else expected, size, *self._limits()
        )

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
        return await self._write(self._append, _member(owner, key), added, *self._limits(), *entries)

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

    def _limits(self) -> tuple[int, int, int]:
        return min(self._bounds.max_bytes, LARGEST), self._bounds.max_bytes, self._age_ms

    async def _write(self, script: Any, *args: Any) -> int:
        async with self._guarded():
            result, more = await script(keys=[_TAG], args=args)
            await self._trim_on(more)
        if result == CONFLICT:
            raise ConflictError
        if result == FULL:
            raise StoreFullError("the document with its log is larger than the store may be")
        return int(result)

    async def _trim_on(self, more: bool) -> None:
        while more:
            more = await self._trim(keys=[_TAG], args=[self._bounds.max_bytes])

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
