"""Age and size of what a store keeps."""

from __future__ import annotations

import pytest

from gateway.serving.store import ConflictError, Store, StoredDocument
from gateway.serving.store.interface import BATCH, DOCUMENT_BYTES, StoreBounds
from tests.store.places import Place

MIB = 2**20


async def test_the_documents_written_longest_ago_make_room_with_their_logs(store: Store, place: Place) -> None:
    for number in range(4):
        await store.put("", f"resp_{number}", bytes(200_000))
    await store.append("", "resp_1", [bytes(50_000)])  # written last but one
    await store.put("", "resp_0", bytes(200_000))
    await store.put("", "resp_4", bytes(200_000))
    kept = [number for number in range(5) if await store.get("", f"resp_{number}")]
    assert kept == [0, 1, 3, 4]
    await store.put("", "large", bytes(MIB - 1000))
    assert await store.get("", "large") == StoredDocument(bytes(MIB - 1000), 1)
    assert await store.entries("", "resp_1", 0, 9) == []
    total, counted = place.kept()
    assert total == counted <= MIB


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


async def test_a_document_is_gone_by_its_age_and_leaves_nothing(store: Store, place: Place) -> None:
    await store.put("", "old", b"old")
    await store.append("", "old", [b"event"])
    await store.put("", "used", b"used")
    place.pass_time(3000)
    await store.append("", "used", [b"event"])
    place.pass_time(700)
    assert await store.get("", "old") is None
    assert await store.entries("", "old", 0, 9) == []
    assert not await store.delete("", "old")
    with pytest.raises(ConflictError):
        await store.append("", "old", [b"late"])
    with pytest.raises(ConflictError):
        await store.put("", "old", b"late", expected=1)
    assert await store.entries("", "used", 0, 9) == [b"event"]
    await store.put("", "new", b"")
    total, counted = place.kept()
    assert total == counted == 2 * DOCUMENT_BYTES + len("usedused" + "event" + "new") + 64
    assert await store.put("", "old", b"again", expected=0) == 1
    assert await store.entries("", "old", 0, 9) == []


async def test_what_is_written_last_stays_when_the_clock_goes_back(store: Store, place: Place) -> None:
    await store.put("", "before", bytes(600_000))
    place.pass_time(-1000)
    await store.put("", "after", bytes(600_000))
    assert await store.get("", "before") is None
    assert await store.get("", "after") == StoredDocument(bytes(600_000), 1)
