"""``python -m benchmarks.state``: what a call of the store costs, with documents of 20 KB, one call after another.

CPU is that of the whole process, the store's thread included, per call; Redis's own CPU is the server's. A redis-server
is started where one is installed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import uvloop

from gateway.serving.store import Store, open_store
from gateway.settings import StateSettings

SIZE = 20_000
CALLS = 3_000
EVENT = os.urandom(300)


async def main() -> None:
    """Measure both stores and print a table."""
    print(f"{CALLS:,} calls of each kind, documents of {SIZE:,} bytes; times in microseconds")
    print("| store | call | CPU | wall, median | wall, 99 % |\n|---|---|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        await _measure("sqlite", StateSettings(path=Path(folder) / "state.sqlite"))
        if shutil.which("redis-server"):
            with _redis(folder) as url:
                await _measure("redis", StateSettings(store="redis", redis_url=url))


async def _measure(name: str, settings: StateSettings) -> None:
    async with _opened(settings) as store:
        data = os.urandom(SIZE)
        calls: dict[str, Callable[[int], Awaitable[object]]] = {
            "put, new": lambda number: store.put("owner", f"resp_{number}", data, expected=0),
            "put, again": lambda number: store.put("owner", f"resp_{number}", data),
            "get": lambda number: store.get("owner", f"resp_{number}"),
            "append of an event": lambda number: store.append("owner", f"resp_{number % 10}", [EVENT]),
            "20 entries": lambda number: store.entries("owner", f"resp_{number % 10}", 0, 20),
            "delete": lambda number: store.delete("owner", f"resp_{number}"),
        }
        for call, make in calls.items():
            cpu, walls = await _timed(make)
            median, late = statistics.median(walls), statistics.quantiles(walls, n=100)[98]
            print(f"| {name} | {call} | {cpu * 1e6:.0f} | {median * 1e6:.0f} | {late * 1e6:.0f} |", flush=True)


async def _timed(make: Callable[[int], Awaitable[object]]) -> tuple[float, list[float]]:
    walls = []
    before = time.process_time()
    for number in range(CALLS):
        begun = time.perf_counter()
        await make(number)
        walls.append(time.perf_counter() - begun)
    return (time.process_time() - before) / CALLS, walls


@contextlib.asynccontextmanager
async def _opened(settings: StateSettings) -> AsyncIterator[Store]:
    store = await open_store(settings)
    if store is None:
        raise SystemExit("no store")
    try:
        yield store
    finally:
        await store.close()


@contextlib.contextmanager
def _redis(folder: str) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = ["--bind", "127.0.0.1", "--port", str(port), "--dir", folder, "--appendonly", "yes", "--save", ""]
    with subprocess.Popen(["redis-server", *options], stdout=subprocess.DEVNULL) as server:
        try:
            while socket.socket().connect_ex(("127.0.0.1", port)):
                time.sleep(0.05)
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            server.terminate()


if __name__ == "__main__":
    uvloop.run(main())
