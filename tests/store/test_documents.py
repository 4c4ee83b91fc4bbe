"""Documents, versions, logs, and the age and size of what is kept, in each store."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateway.serving.store import ConflictError, Store, StoredDocument, StoreUnavailableError
from gateway.serving.store.interface import BATCH, DOCUMENT_BYTES, StoreBounds
from tests.store.places import Place, SqlitePlace

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
