"""Several processes on one store, the end of one of them, and stores that go away while they are used."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import sqlite3
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from gateway.serving.store import (
    ConflictError,
    Store,
    StoredDocument,
    StoreFullError,
    StoreUnavailableError,
    open_store,
)
from gateway.serving.store.interface import BATCH, DOCUMENT_BYTES, StoreBounds
from gateway.serving.store.redis_store import RedisStore
from gateway.serving.store.sqlite_store import SqliteStore
from gateway.settings import StateSettings
from tests.store.places import Place, RedisPlace, SqlitePlace
from tests.store.redis_server import RedisServer
from tests.store.writer import LARGE, SMALL, content
from tests.warm_gateways import ForkedGateway, WarmGateways


@dataclass
class Writer:
    """A process that writes to a store, and what it says."""

    process: ForkedGateway
    said: asyncio.StreamReader

    def kill(self) -> None:
        self.process.kill()


@contextlib.asynccontextmanager
async def writer(mode: str, place: Place, name: str, count: int) -> AsyncIterator[Writer]:
    """A process that writes there."""
    with tempfile.TemporaryDirectory() as folder:
        pipe = Path(folder, "said")
        os.mkfifo(pipe)
        said = asyncio.StreamReader()
        with os.fdopen(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK), "rb", 0) as reading:
            warm = WarmGateways.of_this_process("tests.store.writer")
            arguments, errors = [mode, place.address, name, str(count)], Path(folder, "errors")
            process = warm.start(arguments, os.environ, stdout=pipe, stderr=errors)
            transport, _ = await asyncio.get_running_loop().connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(said), reading
            )
            try:
                yield Writer(process, said)
            finally:
                process.kill()
                process.wait(20)
                transport.close()


async def lines(writer: Writer, most: int | None = None) -> list[str]:
    """The next lines of a process, all that come where ``most`` is None."""
    found: list[str] = []
    while (most is None or len(found) < most) and (line := await writer.said.readline()).endswith(b"\n"):
        found.append(line.decode().strip())
    return found


@pytest.mark.parametrize("count", [200, pytest.param(3_000, marks=pytest.mark.long)])
async def test_what_a_killed_process_had_acknowledged_is_there_and_whole(place: Place, count: int) -> None:
    async with writer("write", place, "first", count) as first, writer("write", place, "second", count // 5) as second:
        acknowledged = await lines(first, count // 2)
        first.kill()
        acknowledged += await lines(first)
        survived = await lines(second)
    assert count // 2 <= len(acknowledged) < count
    assert len(survived) == count // 5, "the end of one process is nothing to another"

    store = place.open(LARGE)
    for key in (*acknowledged, *survived):
        assert await store.get("", key) == StoredDocument(content(key), 1)
        assert await store.entries("", key, 0, 99) in ([content(key)[:100]] * 5, [])
    left = f"first_{len(acknowledged)}"  # what it was about to write, is there as a whole or not at all
    document = await store.get("", left)
    assert document is None or document.data == content(left)
    assert await store.get("", f"first_{len(acknowledged) + 1}") is None
    total, counted = place.kept()
    assert total == counted
    assert await store.put("", "after", b"it takes writes") == 1
    await store.close()


async def test_of_processes_that_change_the_same_version_one_wins(place: Place) -> None:
    async with contextlib.AsyncExitStack() as stack:
        processes = [await stack.enter_async_context(writer("count_up", place, "", 40)) for _ in range(2)]
        assert [await lines(process) for process in processes] == [["done"]] * 2
    store = place.open(LARGE)
    assert await store.get("", "number") == StoredDocument(b"80", 80)
    await store.close()


async def test_processes_that_write_too_much_never_exceed_the_size(place: Place) -> None:
    store = place.open(SMALL)
    await store.put("", "first", b"")
    peak = 0
    async with contextlib.AsyncExitStack() as stack:
        processes = [await stack.enter_async_context(writer("crowd", place, name, 60)) for name in ("a", "b")]
        done = asyncio.gather(*(lines(process) for process in processes))
        while not done.done():
            total, counted = place.kept()
            assert total == counted <= SMALL.max_bytes
            peak = max(peak, total)
            await asyncio.sleep(0)
        assert await done == [["done"]] * 2
    assert peak > SMALL.max_bytes // 2, "there was no need to remove so much"
    assert await store.get("", "first") is None
    await store.close()
    folder = Path(place.address).parent
    if folder.is_dir():
        assert sum(file.stat().st_size for file in folder.iterdir()) < 12 * SMALL.max_bytes


async def test_what_a_killed_redis_had_acknowledged_is_there(own_redis_server: RedisServer) -> None:
    server = own_redis_server
    with server.client() as client:
        place = RedisPlace(server.url, client)
        async with writer("write", place, "first", 10_000) as first:
            acknowledged = await lines(first, 200)
            server.kill()
            acknowledged += await lines(first)
        server.start()
        store = place.open(LARGE)
        for key in acknowledged:
            assert await store.get("", key) == StoredDocument(content(key), 1)
        await store.close()
        total, counted = place.kept()
        assert total == counted


MIB = 2**20


@pytest.mark.parametrize("key", ["alice:resp_1", "5:alice:resp_1", ":resp_1", "resp_*", "%", "\0", "ключ/../é", ""])
async def test_no_key_leads_to_another_document(store: Store, key: str) -> None:
    await store.put("alice", "resp_1", b"hers")
    await store.put("", "resp_1", b"theirs")
    assert await store.get("", key) is None
    assert not await store.delete("", key)
    assert await store.put("", key, b"own") == 1
    assert await store.get("", key) == StoredDocument(b"own", 1)
    assert await store.get("alice", "resp_1") == StoredDocument(b"hers", 1)


async def test_of_writes_at_once_that_expect_the_same_version_one_wins(store: Store) -> None:
    writes = [store.put("", "resp_1", b"%d" % writer, expected=0) for writer in range(20)]
    results = await asyncio.gather(*writes, return_exceptions=True)
    (winner,) = [writer for writer, result in enumerate(results) if result == 1]
    assert sum(isinstance(result, ConflictError) for result in results) == 19
    assert await store.get("", "resp_1") == StoredDocument(b"%d" % winner, 1)


async def test_a_log_takes_many_entries_at_once(store: Store) -> None:
    many = [b"%d" % place for place in range(5000)]
    await store.put("", "resp_1", b"")
    assert await store.append("", "resp_1", many) == 5000
    assert await store.entries("", "resp_1", 0, 9999) == many


async def test_a_document_larger_than_the_store_is_refused(store: Store, place: Place) -> None:
    await store.put("", "kept", b"kept")
    with pytest.raises(StoreFullError):
        await store.put("", "large", bytes(MIB))
    await store.put("", "grows", b"")
    for entries in ([bytes(MIB)], [bytes(MIB // 2)] * 2):
        with pytest.raises(StoreFullError):
            await store.append("", "grows", entries)
    await store.append("", "grows", [bytes(MIB // 2)])
    with pytest.raises(StoreFullError):
        await store.put("", "grows", bytes(MIB // 2))
    assert await store.get("", "grows") == StoredDocument(b"", 1)
    assert await store.get("", "kept") == StoredDocument(b"kept", 1)
    total, counted = place.kept()
    assert total == counted < MIB


async def test_a_closed_file_is_not_opened_again(tmp_path: Path) -> None:
    store = SqlitePlace(tmp_path / "state.sqlite").open(StoreBounds(3600, MIB))
    await store.put("", "resp_1", b"one")
    await store.close()
    with pytest.raises(StoreUnavailableError):
        await store.get("", "resp_1")


MIB = 2**20


async def test_one_write_makes_room_of_more_than_one_transaction_removes(store: Store, place: Place) -> None:
    for number in range(2 * BATCH + 10):
        await store.put("", f"resp_{number}", b"")
    await store.put("", "large", bytes(MIB - 2 * DOCUMENT_BYTES))
    total, counted = place.kept()
    assert total == counted <= MIB
    assert await store.get("", f"resp_{BATCH}") is None


async def test_a_smaller_bound_holds_from_the_first_write(store: Store, place: Place) -> None:
    for number in range(9):
        await store.put("", f"resp_{number}", bytes(100_000))
    smaller = place.open(StoreBounds(3600, 250_000))
    await smaller.put("", "resp_9", b"")
    assert [number for number in range(10) if await smaller.get("", f"resp_{number}")] == [7, 8, 9]
    await smaller.close()


async def test_what_is_written_last_stays_when_the_clock_goes_back(store: Store, place: Place) -> None:
    await store.put("", "before", bytes(600_000))
    place.pass_time(-1000)
    await store.put("", "after", bytes(600_000))
    assert await store.get("", "before") is None
    assert await store.get("", "after") == StoredDocument(bytes(600_000), 1)


BOUNDS = StoreBounds(3600, 2**24)


async def unavailable(store: Store) -> None:
    """Every call says that the store is away, and no more."""
    for call in (
        store.put("", "resp_2", b"two"),
        store.get("", "resp_1"),
        store.delete("", "resp_2"),
        store.append("", "resp_1", [b"0"]),
        store.entries("", "resp_1", 0, 9),
    ):
        with pytest.raises(StoreUnavailableError, match=r"^the store (cannot be used|takes too long)$"):
            await call


async def test_a_file_that_is_removed_is_made_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "state" / "state.sqlite"
    stores = [SqliteStore(path, BOUNDS) for _ in range(2)]
    for number, store in enumerate(stores):
        await store.put("", f"resp_{number}", b"lost")
    for file in path.parent.iterdir():
        file.unlink()
    path.parent.rmdir()
    assert await stores[0].get("", "resp_0") is None
    assert "removed or replaced" in caplog.text
    await stores[1].put("", "resp_1", b"new")
    assert await stores[0].get("", "resp_1") == StoredDocument(b"new", 1), "both are on the new file"
    for store in stores:
        await store.close()


async def test_a_file_that_another_program_locks_is_away_until_it_lets_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.serving.store.sqlite_store.LOCK_S", 0.05)
    path = tmp_path / "state.sqlite"
    store = SqliteStore(path, BOUNDS)
    await store.put("", "resp_1", b"one")
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert await store.get("", "resp_1") == StoredDocument(b"one", 1), "who reads waits for nobody"
        for _ in range(2):
            with pytest.raises(StoreUnavailableError):
                await store.put("", "resp_1", b"two", expected=1)
    assert await store.put("", "resp_1", b"two", expected=1) == 2
    await store.close()


async def test_a_file_that_is_locked_at_the_start_is_used_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("gateway.serving.store.sqlite_store.LOCK_S", 0.05)
    settings = StateSettings(path=tmp_path / "state.sqlite")
    first = await open_store(settings)
    await first.put("", "resp_1", b"one")
    with contextlib.closing(sqlite3.connect(tmp_path / "state.sqlite", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        store = await open_store(settings)
    assert "the store cannot be used" in caplog.text
    assert await store.get("", "resp_1") == StoredDocument(b"one", 1)
    assert "the store can be used again" in caplog.text
    await store.close()
    await first.close()


async def test_a_call_does_not_wait_for_ever_for_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.serving.store.sqlite_store.PATIENCE_S", 0.1)
    path = tmp_path / "state.sqlite"
    store = SqliteStore(path, BOUNDS)
    await store.put("", "resp_1", b"one")
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        calls = [store.put("", f"resp_{number}", b"") for number in range(20)]
        results = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 4)
        assert all(isinstance(result, StoreUnavailableError) for result in results)
    await store.close()


async def test_a_full_disk_is_told_and_what_was_there_stays(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "state.sqlite", BOUNDS)
    await store.put("", "resp_1", b"one")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))  # as a full disk: no file can grow beyond
    try:
        with pytest.raises(StoreUnavailableError):
            await store.put("", "resp_2", bytes(1_000_000))
        assert await store.get("", "resp_1") == StoredDocument(b"one", 1)
        assert await store.get("", "resp_2") is None
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert await store.put("", "resp_2", bytes(1_000_000)) == 1
    await store.close()


async def test_a_file_that_is_damaged_under_way_is_told_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite"
    store = SqliteStore(path, BOUNDS)
    await store.put("", "resp_1", b"one")
    await store.close()
    path.write_bytes(b"no database" * 1000)
    await unavailable(store := SqliteStore(path, BOUNDS))
    await store.close()
    assert path.read_bytes() == b"no database" * 1000


async def test_a_redis_that_is_killed_and_returns(
    own_redis_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    server = own_redis_server
    store = RedisStore(server.url, BOUNDS)
    await asyncio.gather(*(store.put("", f"resp_{number}", b"one") for number in range(20)))
    server.kill()
    await unavailable(store)
    await unavailable(store)
    assert caplog.text.count("cannot be used") == 1, "told once"
    server.start()
    found = await asyncio.gather(*(store.get("", f"resp_{number}") for number in range(20)))
    assert found == [StoredDocument(b"one", 1)] * 20, "connections that the kill has broken are not used"
    assert "can be used again" in caplog.text
    await store.close()


async def test_a_redis_that_stops_answering_or_has_no_memory(
    own_redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.serving.store.redis_store.ANSWER_S", 0.2)
    server = own_redis_server
    store = RedisStore(server.url, BOUNDS)
    await store.put("", "resp_1", b"one")
    server.kill(signal.SIGSTOP)
    await unavailable(store)
    server.kill(signal.SIGCONT)
    with server.client() as client:
        client.config_set("maxmemory", 1)
        with pytest.raises(StoreUnavailableError):
            await store.put("", "resp_1", b"two")
        assert await store.get("", "resp_1") == StoredDocument(b"one", 1)
        assert await store.delete("", "resp_1")
    await store.close()
