"""A store whose calls are counted and timed."""

from __future__ import annotations

import time
from collections.abc import Coroutine, Sequence
from typing import Any, Final, TypeVar

from gateway.serving.store import (
    ConflictError,
    DocumentWrite,
    Store,
    StoredDocument,
    StoreError,
    StoreFill,
    StoreFullError,
    StoreUnavailableError,
)
from gateway.telemetry.metrics import Metrics

Result = TypeVar("Result")
_OUTCOMES: Final[dict[type[StoreError], str]] = {
    ConflictError: "conflict",
    StoreFullError: "full",
    StoreUnavailableError: "unavailable",
}


class MeteredStore:
    """A `Store` around another one."""

    def __init__(self, store: Store, metrics: Metrics) -> None:
        """Wrap ``store``, which is open."""
        self.fill: StoreFill = store.fill
        self._store = store
        self._metrics = metrics
        self._removed = 0
        self._note_fill()

    async def put(self, owner: str, key: str, data: bytes, *, expected: int | None = None) -> int:
        """See `Store.put`."""
        return await self._written("put", len(data), self._store.put(owner, key, data, expected=expected))

    async def put_all(self, owner: str, writes: Sequence[DocumentWrite]) -> list[int]:
        """See `Store.put_all`."""
        size = sum(len(write.data) for write in writes)
        return await self._written("put", size, self._store.put_all(owner, writes))

    async def get(self, owner: str, key: str) -> StoredDocument | None:
        """See `Store.get`."""
        return await self._counted("get", self._store.get(owner, key))

    async def delete(self, owner: str, key: str) -> bool:
        """See `Store.delete`."""
        return await self._counted("delete", self._store.delete(owner, key))

    async def append(self, owner: str, key: str, entries: Sequence[bytes]) -> int:
        """See `Store.append`."""
        return await self._written("append", sum(map(len, entries)), self._store.append(owner, key, entries))

    async def entries(self, owner: str, key: str, after: int, limit: int) -> list[bytes]:
        """See `Store.entries`."""
        return await self._counted("entries", self._store.entries(owner, key, after, limit))

    async def close(self) -> None:
        """See `Store.close`."""
        await self._store.close()

    async def _written(self, operation: str, size: int, call: Coroutine[Any, Any, Result]) -> Result:
        try:
            result = await self._counted(operation, call)
        except StoreUnavailableError:
            self.fill.unwritten = max(size, 1)
            raise
        self.fill.unwritten = 0
        return result

    async def _counted(self, operation: str, call: Coroutine[Any, Any, Result]) -> Result:
        begun, outcome = time.perf_counter(), "ok"
        try:
            return await call
        except StoreError as error:
            outcome = _OUTCOMES[type(error)]
            raise
        finally:
            self._metrics.store_operations.labels(operation, outcome).inc()
            self._metrics.store_times.labels(operation).observe(time.perf_counter() - begun)
            self._note_fill()

    def _note_fill(self) -> None:
        self._metrics.store_bytes.set(self.fill.bytes)
        self._metrics.store_removed.inc(self.fill.removed - self._removed)
        self._removed = self.fill.removed
