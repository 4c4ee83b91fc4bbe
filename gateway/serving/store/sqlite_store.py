"""The store in one SQLite file, whose statements run in a thread of their own.

Several processes may have the file open. It is in WAL mode: readers and a writer do not wait for each other, and
commits of a killed process stay. A power failure may lose the last commits, never a part of one.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import anyio

from gateway.serving.store.interface import (
    BATCH,
    ConflictError,
    DocumentWrite,
    StoreBounds,
    StoredDocument,
    StoreFill,
    StoreOutage,
    StoreUnavailableError,
    document_bytes,
    entries_bytes,
)

LOCK_S: Final = 5.0  # the wait for another process's write
_APPLICATION: Final = 0x746F6777  # "togw", in the header of the file
_FORMAT: Final = 2  # of the file and of what responses and conversations put into it
# Each write raises a document's turn, which orders documents: clocks may go back.
_SCHEMA: Final = f"""
BEGIN IMMEDIATE;
CREATE TABLE documents (
    id INTEGER PRIMARY KEY,
    owner TEXT NOT NULL,
    key TEXT NOT NULL,
    version INTEGER NOT NULL,
    turn INTEGER NOT NULL UNIQUE,
    written REAL NOT NULL,
    entries INTEGER NOT NULL,
    entries_bytes INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    data BLOB NOT NULL,
    UNIQUE (owner, key)
);
CREATE TABLE entries (
    document INTEGER NOT NULL,
    place INTEGER NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (document, place)
) WITHOUT ROWID;
CREATE TABLE totals (bytes INTEGER NOT NULL, turn INTEGER NOT NULL);
INSERT INTO totals VALUES (0, 0);
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {_FORMAT};
COMMIT;
"""  # noqa: S608 - the module's own numbers

_log = logging.getLogger(__name__)
PATIENCE_S: Final = 10.0  # of one call, with its wait for those before it
_PASSING: Final = ("database is locked", "database or disk is full")  # SQLite's words; Python 3.10 has no codes
_T = TypeVar("_T")


class ForeignFileError(Exception):
    """A file that is not a store of this version; the message names what it is."""


@dataclass(frozen=True, slots=True)
class _Row:
    id: int
    version: int
    entries: int
    entries_bytes: int
    bytes: int


_NOTHING = _Row(0, 0, 0, 0, 0)


class SqliteFile:
    """An open store file; used only by the thread that opened it."""

    def __init__(
        self, path: Path, bounds: StoreBounds, fill: StoreFill, clock: Callable[[], float] = time.time
    ) -> None:
        """Open the file, and make file and folder where missing.

        Args:
            path: of the file; SQLite keeps two more beside it, with ``-wal`` and ``-shm`` at the end of their names.
            bounds: of what it keeps.
            fill: updated at each write.
            clock: the time in seconds.

        Raises:
            OSError: folder or file cannot be made.
            sqlite3.Error: the file cannot be opened or written, or is damaged.
            ForeignFileError: it is another program's, or of another version.
        """
        self._path = path
        self._bounds = bounds
        self._fill = fill
        self._clock = clock
        self._base = _opened(path)
        self._identity = _identity(path)

    def is_in_place(self) -> bool:
        """Whether the path still leads to the open file."""
        return self._identity == _identity(self._path)

    def close(self) -> None:
        """Close the file."""
        self._base.close()

    def put_all(self, owner: str, writes: Sequence[DocumentWrite]) -> list[int]:
        """See `Store.put_all`."""
        for write in writes:
            self._bounds.check(document_bytes(owner, write.key, write.data))
        with self._transaction():
            versions = [self._put(owner, write) for write in writes]
            more = self._trim()
        self._trim_on(more)
        return versions

    def get(self, owner: str, key: str) -> StoredDocument | None:
        """See `Store.get`."""
        found = self._base.execute(
            "SELECT data, version FROM documents WHERE owner = ? AND key = ? AND written >= ?",
            (owner, key, self._horizon()),
        ).fetchone()
        return StoredDocument(*found) if found else None

    def delete(self, owner: str, key: str) -> bool:
        """See `Store.delete`."""
        with self._transaction():
            row = self._current(owner, key)
            self._remove(row.id, row.bytes)
        return bool(row.id)

    def append(self, owner: str, key: str, entries: Sequence[bytes]) -> int:
        """See `Store.append`."""
        added = entries_bytes(entries)
        self._bounds.check(added)
        with self._transaction():
            row = self._current(owner, key)
            if not row.id:
                raise ConflictError(key)
            self._bounds.check(row.bytes + added)
            self._base.executemany(
                "INSERT INTO entries VALUES (?, ?, ?)",
                [(row.id, place, entry) for place, entry in enumerate(entries, row.entries)],
            )
            self._base.execute(
                "UPDATE documents SET turn = ?, written = ?, entries = entries + ?,"
                " entries_bytes = entries_bytes + ?, bytes = bytes + ? WHERE id = ?",
                (self._turn(added), self._clock(), len(entries), added, added, row.id),
            )
            more = self._trim()
        self._trim_on(more)
        return row.entries + len(entries)

    def entries(self, owner: str, key: str, after: int, limit: int) -> list[bytes]:
        """See `Store.entries`."""
        found = self._base.execute(
            "SELECT entries.data FROM documents JOIN entries ON document = id"
            " WHERE owner = ? AND key = ? AND written >= ? AND place >= ? ORDER BY place LIMIT ?",
            (owner, key, self._horizon(), after, max(0, limit)),
        )
        return [data for (data,) in found]

    def trim(self) -> None:
        """Remove documents that are too old, or too many."""
        self._trim_on(more=True)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._base.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._base.execute("COMMIT")
        except BaseException:
            if self._base.in_transaction:  # SQLite itself ends some that fail
                self._base.execute("ROLLBACK")
            raise

    def _horizon(self) -> float:
        return self._clock() - self._bounds.max_age_s

    def _put(self, owner: str, write: DocumentWrite) -> int:
        row = self._current(owner, write.key)
        if write.expected is not None and row.version != write.expected:
            raise ConflictError(write.key)
        size = document_bytes(owner, write.key, write.data) + row.entries_bytes
        self._bounds.check(size)
        values = (row.version + 1, self._turn(size - row.bytes), self._clock(), size, write.data)
        if row.id:
            self._base.execute(
                "UPDATE documents SET version = ?, turn = ?, written = ?, bytes = ?, data = ? WHERE id = ?",
                (*values, row.id),
            )
        else:
            self._base.execute(
                "INSERT INTO documents (version, turn, written, bytes, data, owner, key, entries, entries_bytes)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, 0, 0)",
                (*values, owner, write.key),
            )
        return row.version + 1

    def _current(self, owner: str, key: str) -> _Row:
        """The row of a document; one that is too old is removed."""
        found = self._base.execute(
            "SELECT id, version, entries, entries_bytes, bytes, written FROM documents WHERE owner = ? AND key = ?",
            (owner, key),
        ).fetchone()
        if found is None:
            return _NOTHING
        *values, written = found
        row = _Row(*values)
        if written >= self._horizon():
            return row
        self._remove(row.id, row.bytes)
        self._fill.removed += 1
        return _NOTHING

    def _turn(self, added: int) -> int:
        """Count a write and what it adds; the turn of its document."""
        self._base.execute("UPDATE totals SET bytes = bytes + ?, turn = turn + 1", (added,))
        (turn,) = self._base.execute("SELECT turn FROM totals").fetchone()
        return int(turn)

    def _remove(self, number: int, size: int) -> None:
        self._base.execute("DELETE FROM entries WHERE document = ?", (number,))
        self._base.execute("DELETE FROM documents WHERE id = ?", (number,))
        self._base.execute("UPDATE totals SET bytes = bytes - ?", (size,))

    def _trim(self) -> bool:
        """Remove some of what is too old or too much; whether there may be more of it."""
        for _ in range(BATCH):
            oldest = self._base.execute(
                "SELECT id, documents.bytes, written, totals.bytes FROM documents, totals"
                " ORDER BY documents.turn LIMIT 1"
            ).fetchone()
            if oldest is None:
                return False
            number, size, written, self._fill.bytes = oldest
            if self._fill.bytes <= self._bounds.max_bytes and written >= self._horizon():
                return False
            self._remove(number, size)
            self._fill.bytes -= size
            self._fill.removed += 1
        return True

    def _trim_on(self, more: bool) -> None:
        while more:
            with self._transaction():
                more = self._trim()


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _opened(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # One process at a time: SQLite does not wait where two make the same new file. The lock ends with its process.
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        with contextlib.suppress(FileExistsError):  # never opened and closed beside SQLite: that ends its locks
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        base = sqlite3.connect(path, timeout=LOCK_S, isolation_level=None)
        try:
            _prepare(base)
        except BaseException:
            base.close()
            raise
        return base
    finally:
        os.close(folder)


def check_file(path: Path) -> None:
    """Check an existing file without changing it.

    Raises:
        OSError: the file cannot be written.
        sqlite3.Error: the file cannot be opened, or is damaged.
        ForeignFileError: the file is another program's, or of another version.
    """
    if not os.access(path, os.R_OK | os.W_OK):
        raise PermissionError("it must be readable and writable")
    with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as base:
        _check_kind(base)


def check_folder(path: Path) -> None:
    """Check whether a missing file could be made.

    Raises:
        OSError: the file could not be made.
    """
    folder = next(each for each in path.absolute().parents if each.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(f"{folder} cannot be written")


def _check_kind(base: sqlite3.Connection) -> bool:
    """Reject what is not a store of this version; return whether the file holds anything."""
    (application,) = base.execute("PRAGMA application_id").fetchone()
    (version,) = base.execute("PRAGMA user_version").fetchone()
    (tables,) = base.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if tables and application != _APPLICATION:
        raise ForeignFileError("it is a database of another program")
    if tables and version != _FORMAT:
        raise ForeignFileError(f"its format is {version}, but this version of the gateway uses format {_FORMAT}")
    return bool(tables)


def _prepare(base: sqlite3.Connection) -> None:
    is_there = _check_kind(base)
    (mode,) = base.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise sqlite3.OperationalError("its file system has no shared memory")
    base.execute("PRAGMA synchronous = NORMAL")
    base.execute("PRAGMA secure_delete = ON")  # what a client deletes is overwritten
    base.execute("PRAGMA temp_store = MEMORY")  # the root file system may be read-only
    base.execute(f"PRAGMA journal_size_limit = {2**24}")
    if not is_there:
        base.executescript(_SCHEMA)
    base.execute("UPDATE totals SET bytes = bytes")  # a file that can only be read is found now


class SqliteStore:
    """A `Store` in one file, for the processes of one machine."""

    def __init__(self, path: Path, bounds: StoreBounds, clock: Callable[[], float] = time.time) -> None:
        """Describe it; the file is opened by the first call.

        Args:
            path: of the file.
            bounds: of what it keeps.
            clock: the time in seconds.
        """
        self.fill = StoreFill()
        self._path = path
        self._bounds = bounds
        self._clock = clock
        self._file: SqliteFile | None = None
        self._outage = StoreOutage(str(path))
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store")

    async def open(self) -> None:
        """Open the file, and remove old documents; a locked file or a full disk is tried again later.

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
            self.fill.unwritten = 1
            self._outage.begin(error)

    async def put(self, owner: str, key: str, data: bytes, *, expected: int | None = None) -> int:
        """See `Store.put`."""
        (version,) = await self.put_all(owner, [DocumentWrite(key, data, expected)])
        return version

    async def put_all(self, owner: str, writes: Sequence[DocumentWrite]) -> list[int]:
        """See `Store.put_all`."""
        return await self._run(lambda file: file.put_all(owner, writes))

    async def get(self, owner: str, key: str) -> StoredDocument | None:
        """See `Store.get`."""
        return await self._run(lambda file: file.get(owner, key))

    async def delete(self, owner: str, key: str) -> bool:
        """See `Store.delete`."""
        return await self._run(lambda file: file.delete(owner, key))

    async def append(self, owner: str, key: str, entries: Sequence[bytes]) -> int:
        """See `Store.append`."""
        return await self._run(lambda file: file.append(owner, key, entries))

    async def entries(self, owner: str, key: str, after: int, limit: int) -> list[bytes]:
        """See `Store.entries`."""
        return await self._run(lambda file: file.entries(owner, key, after, limit))

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
            raise StoreUnavailableError("the store timed out") from None

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
                "the file of the store was removed or replaced, and its content is lost: %s",
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
