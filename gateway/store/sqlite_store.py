"""The store in one SQLite file, whose statements run in a thread of their own."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

import anyio

from gateway.store.bounds import Bounds
from gateway.store.interface import Document, Fill, StoreUnavailableError, Write
from gateway.store.outage import Outage
from gateway.store.sqlite_file import ForeignFileError, SqliteFile

_log = logging.getLogger(__name__)
PATIENCE_S: Final = 10.0  # of one call, with its wait for those before it
_PASSING: Final = ("database is locked", "database or disk is full")  # SQLite's words; Python 3.10 has no codes
_T = TypeVar("_T")


class SqliteStore:
    """A `Store` in one file, for the processes of one machine."""

    def __init__(self, path: Path, bounds: Bounds, clock: Callable[[], float] = time.time) -> None:
        """Describe it; the file is opened by the first call.

        Args:
            path: of the file.
            bounds: of what it keeps.
            clock: the time in seconds.
        """
        self.fill = Fill()
        self._path = path
        self._bounds = bounds
        self._clock = clock
        self._file: SqliteFile | None = None
        self._outage = Outage(str(path))
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store")

    async def open(self) -> None:
        """Open the file, and remove what is too old; one that is locked, or whose disk is full, is tried again later.

        Raises:
            OSError: folder or file cannot be made.
            sqlite3.Error: the file cannot be opened or written, or is damaged.
            ForeignFileError: it is another program's, or of another version.
        """
        try:
            await asyncio.wrap_future(self._thread.submit(lambda: self._opened().trim()))
        except sqlite3.OperationalError as error:
            if str(error) not in _PASSING:
                raise
            self._outage.begin(error)

    async def put(self, owner: str, key: str, data: bytes, *, expected: int | None = None) -> int:
        """See `Store.put`."""
        (version,) = await self.put_all(owner, [Write(key, data, expected)])
        return version

    async def put_all(self, owner: str, writes: Sequence[Write]) -> list[int]:
        """See `Store.put_all`."""
        return await self._run(lambda file: file.put_all(owner, writes))

    async def get(self, owner: str, key: str) -> Document | None:
        """See `Store.get`."""
        return await self._run(lambda file: file.get(owner, key))

    async def delete(self, owner: str, key: str) -> bool:
        """See `Store.delete`."""
        return await self._run(lambda file: file.delete(owner, key))

    async def append(self, owner: str, key: str, entries: Sequence[bytes]) -> int:
        """See `Store.append`."""
        return await self._run(lambda file: file.append(owner, key, entries))

    async def entries(self, owner: str, key: str, after: int, most: int) -> list[bytes]:
        """See `Store.entries`."""
        return await self._run(lambda file: file.entries(owner, key, after, most))

    async def close(self) -> None:
        """See `Store.close`."""
        await asyncio.wrap_future(self._thread.submit(self._let_go))
        self._thread.shutdown(wait=False)

    async def _run(self, work: Callable[[SqliteFile], _T]) -> _T:
        try:
            call = asyncio.wrap_future(self._thread.submit(self._guarded, work))
        except RuntimeError:  # the thread has ended
            raise StoreUnavailableError("the store is closed") from None
        try:
            with anyio.fail_after(PATIENCE_S):
                return await call
        except TimeoutError:
            raise StoreUnavailableError("the store takes too long") from None

    def _guarded(self, work: Callable[[SqliteFile], _T]) -> _T:
        """Do the work in the store's thread; after an error the file is opened anew by the next."""
        try:
            result = work(self._opened())
        except (OSError, sqlite3.Error, ForeignFileError) as error:
            self._outage.begin(error)
            self._let_go()
            raise StoreUnavailableError("the store cannot be used") from None
        self._outage.end()
        return result

    def _opened(self) -> SqliteFile:
        if self._file is not None and not self._file.is_in_place():
            _log.error(
                "the store's file was removed or replaced, with what it held: %s",
                self._path,
                extra={"event": "store_replaced"},
            )
            self._let_go()
        if self._file is None:
            self._file = SqliteFile(self._path, self._bounds, self.fill, self._clock)
        return self._file

    def _let_go(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()
