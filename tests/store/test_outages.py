"""Stores that go away while they are used, and come back."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import signal
import sqlite3
from pathlib import Path

import pytest

from gateway.serving.store import Store, StoredDocument, StoreUnavailableError, open_store
from gateway.serving.store.interface import StoreBounds
from gateway.serving.store.redis_store import RedisStore
from gateway.serving.store.sqlite_store import SqliteStore
from gateway.settings import StateSettings
from tests.store.redis_server import RedisServer

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
