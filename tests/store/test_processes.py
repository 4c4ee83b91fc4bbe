"""Several processes on one store, and the end of one of them in the middle of its work."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from gateway.serving.store import StoredDocument
from tests.store.places import Place, RedisPlace
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
