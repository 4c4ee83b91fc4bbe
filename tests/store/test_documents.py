"""Documents, versions, logs and owners, in each store."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateway.serving.store import ConflictError, Store, StoredDocument, StoreFullError, StoreUnavailableError
from gateway.serving.store.interface import StoreBounds
from tests.store.places import Place, SqlitePlace

MIB = 2**20


async def test_a_document_is_nobody_elses(store: Store) -> None:
    await store.put("alice", "resp_1", b"hers")
    await store.append("alice", "resp_1", [b"event"])
    assert await store.get("bob", "resp_1") is None
    assert await store.entries("bob", "resp_1", 0, 9) == []
    assert not await store.delete("bob", "resp_1")
    with pytest.raises(ConflictError):
        await store.append("bob", "resp_1", [b"event"])
    assert await store.put("bob", "resp_1", b"his") == 1
    assert await store.get("alice", "resp_1") == StoredDocument(b"hers", 1)
    assert await store.entries("alice", "resp_1", 0, 9) == [b"event"]


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
