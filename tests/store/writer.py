"""A process that writes to a store, and tells what it did; its arguments are MODE, ADDRESS, NAME and COUNT."""

from __future__ import annotations

import asyncio
import hashlib
import random
import sys

from gateway.serving.store import ConflictError, Store
from gateway.serving.store.interface import StoreBounds
from tests.store.places import store_at

DOCUMENT = 20_000
SMALL = StoreBounds(3600, 2**20)
LARGE = StoreBounds(3600, 2**30)


def content(name: str) -> bytes:
    """Bytes of a document that tell whether all of them are there."""
    return hashlib.sha256(name.encode()).digest() * (DOCUMENT // 32)


def tell(line: str) -> None:
    """Write a line for the test that reads."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def write(store: Store, name: str, count: int) -> None:
    """Write documents with logs, and tell the name of each when it is acknowledged."""
    for number in range(count):
        key = f"{name}_{number}"
        await store.put("", key, content(key), expected=0)
        tell(key)
        await store.append("", key, [content(key)[:100]] * 5)


async def count_up(store: Store, name: str, count: int) -> None:
    """Add one to a number by compare-and-set, until ``count`` of the writes were ours."""
    del name
    ours = 0
    while ours < count:
        document = await store.get("", "number")
        number, version = (int(document.data), document.version) if document else (0, 0)
        try:
            await store.put("", "number", b"%d" % (number + 1), expected=version)
        except ConflictError:
            continue
        ours += 1
    tell("done")


async def crowd(store: Store, name: str, count: int) -> None:
    """Write, append and delete at random in a store that is too small for it."""
    chance = random.Random(name)
    for number in range(count):
        key = f"{name}_{number}"
        await store.put("", key, bytes(chance.randrange(60_000)))
        try:
            await store.append("", key, [bytes(chance.randrange(5_000))] * chance.randrange(5))
        except ConflictError:  # the others have made room of it
            continue
        if chance.random() < 0.2:
            await store.delete("", key)
    tell("done")


async def _work(mode: str, address: str, name: str, count: str) -> None:
    """Do one of these."""
    store = store_at(address, SMALL if mode == "crowd" else LARGE)
    await {"write": write, "count_up": count_up, "crowd": crowd}[mode](store, name, int(count))
    await store.close()


def main() -> None:
    """Do what the arguments say."""
    asyncio.run(_work(*sys.argv[1:]))
