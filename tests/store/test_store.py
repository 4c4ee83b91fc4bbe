"""One suite over every store: documents, versions, logs, owners."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.store import ConflictError, Document, Store, StoreFullError
from gateway.store.bounds import Bounds
from gateway.store.sqlite_store import SqliteStore

MIB = 2**20


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    store = SqliteStore(tmp_path / "state" / "state.sqlite", Bounds(3600, MIB))
    yield store
    await store.close()


async def test_a_document_is_read_as_it_was_written(store: Store) -> None:
    assert await store.get("", "resp_1") is None
    assert await store.put("", "resp_1", b"one\0\xff") == 1
    assert await store.put("", "resp_1", b"two") == 2
    assert await store.get("", "resp_1") == Document(b"two", 2)


async def test_a_document_is_nobody_elses(store: Store) -> None:
    await store.put("alice", "resp_1", b"hers")
    await store.append("alice", "resp_1", [b"event"])
    assert await store.get("bob", "resp_1") is None
    assert await store.entries("bob", "resp_1", 0, 9) == []
    assert not await store.delete("bob", "resp_1")
    with pytest.raises(ConflictError):
        await store.append("bob", "resp_1", [b"event"])
    assert await store.put("bob", "resp_1", b"his") == 1
    assert await store.get("alice", "resp_1") == Document(b"hers", 1)


async def test_a_write_that_expects_another_version_changes_nothing(store: Store) -> None:
    with pytest.raises(ConflictError):
        await store.put("", "resp_1", b"", expected=1)
    assert await store.put("", "resp_1", b"one", expected=0) == 1
    for wrong in (0, 2):
        with pytest.raises(ConflictError):
            await store.put("", "resp_1", b"other", expected=wrong)
    assert await store.get("", "resp_1") == Document(b"one", 1)
    assert await store.put("", "resp_1", b"two", expected=1) == 2


async def test_a_log_is_read_in_parts(store: Store) -> None:
    await store.put("", "resp_1", b"")
    assert await store.append("", "resp_1", [b"0", b"1"]) == 2
    assert await store.append("", "resp_1", [b"2"]) == 3
    assert await store.put("", "resp_1", b"again") == 2, "a log is not a version"
    assert await store.entries("", "resp_1", 0, 2) == [b"0", b"1"]
    assert await store.entries("", "resp_1", 1, 9) == [b"1", b"2"]
    assert await store.entries("", "resp_1", 3, 9) == []


async def test_a_deleted_document_is_gone_with_its_log(store: Store) -> None:
    await store.put("", "resp_1", b"one")
    await store.append("", "resp_1", [b"0"])
    assert await store.delete("", "resp_1")
    assert not await store.delete("", "resp_1")
    assert await store.get("", "resp_1") is None
    with pytest.raises(ConflictError):
        await store.append("", "resp_1", [b"1"])
    assert await store.put("", "resp_1", b"new", expected=0) == 1
    assert await store.entries("", "resp_1", 0, 9) == []


async def test_a_document_larger_than_the_store_is_refused(store: Store) -> None:
    await store.put("", "kept", b"kept")
    with pytest.raises(StoreFullError):
        await store.put("", "large", bytes(MIB))
    await store.put("", "grows", b"")
    with pytest.raises(StoreFullError):
        await store.append("", "grows", [bytes(MIB // 2), bytes(MIB // 2)])
    assert await store.entries("", "grows", 0, 9) == []
    assert await store.get("", "kept") == Document(b"kept", 1)
