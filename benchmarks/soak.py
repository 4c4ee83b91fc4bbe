"""Both transports under mixed load for a given time, while the server sends connections away and is restarted.

    python benchmarks/soak.py --seconds 1800
    python benchmarks/soak.py --seconds 1800 --transport h2 --workers 6 --rest 1    # one, with little load

Each transport has a process of its own, all on one server. Requests that the server answers are checked to the last
response, in order; those that it fails must fail with the status that it gave; only around a restart may requests be
told that the server is away, and not for long. At the end nothing may be left: no request in the server, no task, no
stream, no memory, no open file.
The exit status is 1 when something was wrong. Prints a line now and then, and one JSON object for each transport.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import random
import socket
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import uvloop
from tritonclient.grpc import service_pb2

from gateway.triton.grpcio import open_channel
from gateway.triton.h2.http2_streams import Http2Stream
from gateway.triton.transport import InferCall, Transport, TransportError
from gateway.triton.transports import TransportName, make_transport

TRANSPORTS: tuple[TransportName, ...] = ("grpcio", "h2")
_WORKERS = 24
_RESTART_S = 20
_REPORT_S = 10
_MOST_GROWTH_MB = 24.0
_MOST_MORE_FILES = 4  # connections of before that finish their requests
_MOST_AWAY_S = 20.0  # a stop may take 5, a start 3
_AWAY = {"UNAVAILABLE", "CANCELLED"}
_STATUS = ("RESOURCE_EXHAUSTED", "größer als 100%")


class WrongError(Exception):
    """An answer with wrong content."""


def resident_mb() -> float:
    """Resident memory of this process."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def open_files() -> int:
    """Files and connections that this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


class Client:
    """Load over one transport, checked answer by answer.

    Attributes:
        outcomes: numbers of requests by kind and ending.
        messages: responses read.
        wrong: faults.
        longest_away: seconds between two good answers with none but "server away" in between.
    """

    def __init__(self, transport: Transport, name: str, seconds: float, rest: float) -> None:
        self._transport = transport
        self._name = name
        self._rest = rest
        self._end = time.monotonic() + seconds
        self._chance = random.Random(7)  # the same load each time
        self.outcomes: Counter[str] = Counter()
        self.messages = 0
        self.wrong: list[str] = []
        self.longest_away = 0.0
        self._away_since: float | None = None
        # What a request does, and how often.
        self._kinds: dict[Callable[[], Awaitable[None]], int] = {
            self._burst: 30,
            self._paced: 30,
            self._slowly_read: 6,
            self._large: 3,
            self._prompt: 3,
            self._status: 8,
            self._error: 8,
            self._leave: 8,
            self._deadline: 2,
        }

    async def work(self) -> None:
        """One request after the other until the time is over."""
        kinds, weights = zip(*self._kinds.items(), strict=True)
        while time.monotonic() < self._end and len(self.wrong) < 20:
            (kind,) = self._chance.choices(kinds, weights)
            outcome = await self._run(kind)
            self.outcomes[f"{kind.__name__[1:]}: {outcome}"] += 1
            if outcome == "server away":
                self._away_since = self._away_since or time.monotonic()
                await asyncio.sleep(0.2)
            elif self._away_since is not None:
                self.longest_away = max(self.longest_away, time.monotonic() - self._away_since)
                self._away_since = None
            await asyncio.sleep(self._rest)

    async def running(self) -> int:
        """Requests of this client that the server still works on."""
        call = self._ask("running", 1)
        message = parsed(await call.read())
        assert await call.read() is None  # its own stream is over when streams are counted
        return number_of(message)

    async def _run(self, kind: Callable[[], Awaitable[None]]) -> str:
        try:
            await asyncio.wait_for(kind(), 60)
        except TransportError as error:
            if error.status in _AWAY:
                return "server away"
            self.wrong.append(f"{kind.__name__}: {error}")
        except (WrongError, asyncio.TimeoutError) as error:
            self.wrong.append(f"{kind.__name__}: {error!r}")
        else:
            return "as it should"
        return "wrong"

    def _ask(self, what: str, responses: int, content: bytes = b"", timeout: float = 50.0) -> InferCall:
        request = service_pb2.ModelInferRequest(
            model_name=what, model_version=self._name, id=str(responses), raw_input_contents=[content]
        )
        return self._transport.infer(request, timeout=timeout)

    async def _read(self, call: InferCall, count: int) -> None:
        for expected in range(count):
            message = parsed(await call.read())
            self.messages += 1
            if message.error_message or number_of(message) != expected:
                raise WrongError(f"instead of response {expected} of {count}: {str(message)[:200]}")

    async def _whole(self, what: str, count: int, content: bytes = b"") -> None:
        call = self._ask(what, count, content)
        await self._read(call, count)
        if await call.read() is not None:
            raise WrongError(f"more than {count} responses")

    async def _burst(self) -> None:
        await self._whole("burst", self._chance.randint(1, 300))

    async def _paced(self) -> None:
        await self._whole("paced", self._chance.randint(1, 100))

    async def _large(self) -> None:
        await self._whole("large", self._chance.randint(1, 5))

    async def _prompt(self) -> None:
        await self._whole("burst", 3, bytes(self._chance.randint(100_000, 5_000_000)))

    async def _slowly_read(self) -> None:
        call = self._ask("flood", 200)
        await self._read(call, 1)
        await asyncio.sleep(self._chance.random())
        for expected in range(1, 200):
            if number_of(parsed(await call.read())) != expected:
                raise WrongError(f"response {expected} of a slow reader")
        if await call.read() is not None:
            raise WrongError("more than 200 responses")

    async def _status(self) -> None:
        call, count = self._ask("status", 3), 3
        await self._read(call, count)
        try:
            await call.read()
        except TransportError as error:
            if (error.status, error.text) != _STATUS:
                raise
        else:
            raise WrongError("no status")

    async def _error(self) -> None:
        call = self._ask("error", 2)
        await self._read(call, 2)
        if parsed(await call.read()).error_message != "failed":
            raise WrongError("no error message")
        call.cancel()

    async def _leave(self) -> None:
        call = self._ask("stall", 20)
        await self._read(call, self._chance.randint(0, 20))
        if self._chance.random() < 0.5:
            call.cancel()
            return
        # As the gateway leaves: a task that is cancelled while it waits costs grpcio memory.
        reader = asyncio.create_task(self._drain(call))
        await asyncio.sleep(0)
        call.cancel()
        try:
            await reader
        except TransportError as error:
            if error.status != "CANCELLED":
                raise

    async def _drain(self, call: InferCall) -> None:
        while await call.read() is not None:
            pass

    async def _deadline(self) -> None:
        try:
            await self._drain(self._ask("stall", 5, timeout=0.3))
        except TransportError as error:
            if error.status != "DEADLINE_EXCEEDED":
                raise


def parsed(message: bytes | None) -> Any:
    """Parse a response; a missing one is wrong."""
    if message is None:
        raise WrongError("the stream has ended")
    return service_pb2.ModelStreamInferResponse.FromString(message)


def number_of(message: Any) -> int:
    """The number that a response carries."""
    return int(struct.unpack_from("<i", message.infer_response.raw_output_contents[0])[0])


async def load(name: TransportName, url: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Put one transport under load, and count its leftovers."""
    channel = open_channel(url)
    transport = make_transport(name, url, channel)
    client = Client(transport, name, arguments.seconds, arguments.rest)
    begun, begun_cpu = time.monotonic(), time.process_time()
    tasks = [asyncio.create_task(client.work()) for _ in range(arguments.workers)]
    memory: list[float] = []
    files: list[int] = []
    while not all(task.done() for task in tasks):
        await asyncio.wait(tasks, timeout=_REPORT_S)
        gc.collect()
        memory.append(resident_mb())
        files.append(open_files())
        print(
            f"{name}: {time.monotonic() - begun:.0f} s, {client.messages} responses, {memory[-1]:.1f} MB, "
            f"{files[-1]} files, {len(asyncio.all_tasks())} tasks, {time.process_time() - begun_cpu:.1f} s of CPU",
            flush=True,
        )
    for task in tasks:
        task.result()
    left = await _leftovers(client)
    await transport.close()
    await channel.close()
    settled = memory[len(memory) // 3 :] or memory
    growth = settled[-1] - settled[0]
    checks = {
        "answers": not client.wrong,
        "nothing left": not any(left.values()),
        "memory": growth <= _MOST_GROWTH_MB,
        "files": max(files[len(files) // 3 :]) <= files[0] + _MOST_MORE_FILES,
        "found again": client.longest_away <= _MOST_AWAY_S,
    }
    return {
        "transport": name,
        "seconds": round(time.monotonic() - begun),
        "requests": sum(client.outcomes.values()),
        "responses": client.messages,
        "outcomes": dict(sorted(client.outcomes.items())),
        "wrong": client.wrong[:10],
        "longest_away_s": round(client.longest_away, 1),
        "left": left,
        "memory_mb": {"first": round(memory[0]), "settled": round(settled[0]), "last": round(settled[-1])},
        "files": {"first": files[0], "most": max(files), "last": files[-1]},
        "checks": checks,
        "ok": all(checks.values()),
    }


async def _leftovers(client: Client) -> dict[str, int]:
    """Leftovers after the last request: in the server, as tasks, as streams of h2."""
    running = await client.running()
    for _ in range(50):
        if not running:
            break
        await asyncio.sleep(0.1)
        running = await client.running()
    gc.collect()
    streams = [each for each in gc.get_objects() if isinstance(each, Http2Stream) and each.status is None]
    own = asyncio.current_task()
    works = [task for task in asyncio.all_tasks() if task is not own and "Client" in repr(task.get_coro())]
    return {"requests in the server": running, "running streams": len(streams), "tasks": len(works)}


def start_server(port: int) -> subprocess.Popen[bytes]:
    """Start the server, which listens a moment later."""
    return subprocess.Popen([sys.executable, Path(__file__).with_name("soak_server.py"), str(port)])


def free_port() -> int:
    """A free TCP port of 127.0.0.1."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def soak(names: Sequence[TransportName], arguments: argparse.Namespace) -> int:
    """Run transports against one server, and restart that now and then; the exit status."""
    seconds = arguments.seconds
    port = free_port()
    server = start_server(port)
    time.sleep(2)
    options = ["--seconds", str(seconds), "--workers", str(arguments.workers), "--rest", str(arguments.rest)]
    command = [sys.executable, __file__, *options, "--url", f"127.0.0.1:{port}", "--transport"]
    clients = [subprocess.Popen([*command, name]) for name in names]
    end = time.monotonic() + seconds
    restarts = 0
    try:
        while any(client.poll() is None for client in clients):
            time.sleep(1)
            # The last restart leaves the clients the time to find the server again.
            if (
                time.monotonic() > end - seconds + (restarts + 1) * _RESTART_S
                and time.monotonic() < end - _RESTART_S / 2
            ):
                restarts += 1
                (server.kill if restarts % 2 else server.terminate)()
                server.wait()
                server = start_server(port)
    finally:
        for process in [*clients, server]:
            process.terminate()
            process.wait()
    print(f"{restarts} restarts of the server")
    return int(any(client.returncode for client in clients))


def main() -> int:
    """Run transports, each in a child, or be that child."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120, help="how long")
    parser.add_argument("--transport", choices=TRANSPORTS, help="only this one")
    parser.add_argument("--workers", type=int, default=_WORKERS, help="requests at a time, of each transport")
    parser.add_argument("--rest", type=float, default=0, help="seconds between two requests of a worker")
    parser.add_argument("--url", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.url is None:
        return soak([arguments.transport] if arguments.transport else TRANSPORTS, arguments)
    uvloop.install()
    result = asyncio.run(load(arguments.transport, arguments.url, arguments))
    print(json.dumps(result, indent=1, ensure_ascii=False), flush=True)
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
