"""Age and size of what a store keeps."""

from __future__ import annotations

from gateway.serving.store import Store, StoredDocument
from gateway.serving.store.interface import BATCH, DOCUMENT_BYTES, StoreBounds
from tests.store.places import Place

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
