"""What the asyncio side of h2 does beyond what both transports do: attempts, signs of life, floods."""

from __future__ import annotations

import asyncio
import itertools
import socket
import struct
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from raw_http2 import DATA, GOAWAY, PING, RST, SETTINGS, WINDOW, Peer, answer, frame, nothing, served

from gateway.triton.h2 import H2Transport
from gateway.triton.h2 import keepalive as keepalive_module
from gateway.triton.h2.keepalive import KeepAlive
from gateway.triton.h2.limits import Timing
from gateway.triton.transport import InferCall
from tests.triton.calls import ask, begun, failure


async def test_attempts_are_spaced_and_requests_in_between_fail_at_once() -> None:
    async with served(nothing, b"no greeting at all", timing=Timing(first_backoff=30, last_backoff=30)) as (
        server,
        transport,
    ):
        errors = [await failure(transport.infer(ask("good"), timeout=20)) for _ in range(20)]
        assert {error.status for error in errors} == {"UNAVAILABLE"}
        assert len(server.peers) == 1


@pytest.mark.parametrize("end", ["cancel", "deadline", "close"])
async def test_requests_that_wait_for_a_connection_can_end(end: str) -> None:
    async with served(nothing, b"", timing=Timing(connect=20)) as (server, transport):
        call = transport.infer(ask("good"), timeout=0.1 if end == "deadline" else 20)
        await server.until(lambda: bool(server.peers and server.peers[0].frames))
        if end == "cancel":
            call.cancel()
        elif end == "close":
            await transport.close()
        assert (await failure(call)).status == ("DEADLINE_EXCEEDED" if end == "deadline" else "CANCELLED")
        await transport.close()
        assert (await failure(transport.infer(ask("good"), timeout=20))).status == "CANCELLED"


async def test_a_server_without_a_greeting_is_given_up() -> None:
    async with served(nothing, b"", timing=Timing(connect=0.05)) as (_, transport):
        assert (await failure(transport.infer(ask("good"), timeout=20))).status == "UNAVAILABLE"


async def test_a_server_that_always_says_goodbye_is_given_up() -> None:
    greeting = frame(SETTINGS, 0, 0) + frame(GOAWAY, 0, 0, bytes(8))
    async with served(nothing, greeting) as (server, transport):
        assert (await failure(transport.infer(ask("good"), timeout=20))).status == "UNAVAILABLE"
        assert len(server.peers) < 20


async def test_a_server_that_answers_pings_is_waited_for() -> None:
    async def attack(peer: Peer, stream: int) -> None:
        peer.send(peer.headers(stream), frame(DATA, 0, stream, answer(1)))

    async with served(attack, timing=Timing(keepalive=0.01, keepalive_timeout=1)) as (server, transport):
        call = await begun(transport, "bad")
        frames = server.peers[0].frames
        await server.until(lambda: sum(kind == PING for kind, *_ in frames) == 2)
        call.cancel()


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="this system's TCP has no such timeout")
async def test_what_a_dead_network_does_not_acknowledge_ends_the_connection() -> None:
    async with served(nothing, timing=Timing(keepalive_timeout=7)) as (_, transport):
        await transport.infer(ask("good"), timeout=20).read()
        connection = transport._current._transport.get_extra_info("socket")
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 7_000


class Clock:
    """A loop whose time a test moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.next: tuple[float, Callable[[], None]] | None = None

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[[], None]) -> Any:
        self.next = self.now + delay, callback
        return self

    def run_to(self, end: float) -> None:
        while self.next is not None and self.next[0] <= end:
            (self.now, callback), self.next = self.next, None
            callback()
        self.now = end


def test_pings_become_rare_before_servers_mind(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, pings, busy = Clock(), [], True
    monkeypatch.setattr(keepalive_module.asyncio, "get_running_loop", lambda: clock)

    def ping() -> None:
        pings.append(clock.now)
        keepalive.note_received(progress=False)  # the answer

    keepalive = KeepAlive(60, 20, busy=lambda: busy, ping=ping, give_up=pytest.fail)
    keepalive.begin()
    clock.run_to(2_000)
    assert pings[:2] == [60, 120]
    assert all(later - earlier > 300 for earlier, later in itertools.pairwise(pings[1:]))
    assert len(pings) > 4
    keepalive.note_received(progress=True)
    del pings[:]
    clock.run_to(2_110)
    assert len(pings) == 1
    busy = False
    clock.run_to(9_000)
    assert len(pings) == 1


async def test_a_connection_that_takes_no_more_is_closed_when_its_last_request_leaves() -> None:
    async def attack(peer: Peer, stream: int) -> None:
        peer.send(
            peer.headers(stream), frame(DATA, 0, stream, answer(1)), frame(GOAWAY, 0, 0, bytes([0] * 3 + [9] + [0] * 4))
        )

    async with served(attack) as (server, transport):
        call = await begun(transport, "bad")
        call.cancel()
        await server.until(lambda: server.peers[0].closed)
        assert [kind for kind, *_ in server.peers[0].frames][-1] == RST


async def test_a_host_that_cannot_be_one() -> None:
    transport = H2Transport("a..b:8001")
    assert (await failure(transport.infer(ask("good"), timeout=20))).status == "UNAVAILABLE"
    await transport.close()


async def test_a_flood_of_messages_beyond_the_credit() -> None:
    async def attack(peer: Peer, stream: int) -> None:
        peer.send(peer.headers(stream))
        for _ in range(5_000):
            peer.send(frame(DATA, 0, stream, answer(*range(230))))

    async with served(attack) as (_, transport):
        bystander = await begun(transport)
        call = transport.infer(ask("bad"), timeout=20)
        # The bystander's answer comes after the flood, which the connection has credit for, but not the stream.
        assert await bystander.read() is not None
        assert await bystander.read() is None
        for _ in range(65):  # what it had credit for
            assert await call.read() is not None
        assert (await failure(call)).status == "INTERNAL"


async def test_prompts_for_a_server_that_does_not_read_wait_in_their_requests() -> None:
    open_wide = frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 2**31 - 1)) + frame(WINDOW, 0, 0, struct.pack(">I", 2**30))
    async with served(nothing, open_wide) as (server, transport):
        await transport.infer(ask("good"), timeout=20).read()
        server.peers[0].stop_reading()
        prompt = bytes(10_000_000)
        calls = [transport.infer(ask("bad", prompt), timeout=20) for _ in range(3)]
        tracemalloc.start()
        reader = asyncio.create_task(failure(calls[0]))
        for _ in range(50):
            await asyncio.sleep(0)
        assert tracemalloc.get_traced_memory()[0] < 4 * 2**20
        tracemalloc.stop()
        for call in calls:
            call.cancel()
        assert (await reader).status == "CANCELLED"


async def test_a_tap_takes_what_it_knows_and_the_reader_the_rest() -> None:
    known, taken = asyncio.Event(), []

    def tap(messages: Sequence[bytes]) -> int:
        mine = list(itertools.takewhile(lambda message: message != answer(3)[5:], messages))
        taken.extend(mine)
        known.set()
        return len(mine)

    async def attack(peer: Peer, stream: int) -> None:
        peer.send(peer.headers(stream), frame(DATA, 0, stream, answer(1)))
        await reading.wait()
        peer.send(frame(DATA, 0, stream, answer(2)), frame(DATA, 0, stream, answer(2)))
        await known.wait()
        peer.send(*(frame(DATA, 0, stream, answer(number)) for number in (2, 3, 2)), peer.trailers(stream))

    reading = asyncio.Event()
    async with served(attack) as (_, transport):
        call = transport.infer(ask("bad"), timeout=20)
        assert await call.read() == answer(1)[5:]
        call.tap = tap
        reader = asyncio.ensure_future(call.read())
        await asyncio.sleep(0)  # let it wait
        reading.set()
        assert await asyncio.wait_for(reader, 20) == answer(3)[5:]
        assert taken == [answer(2)[5:]] * 3
        assert await call.read() == answer(2)[5:]
        assert await call.read() is None


async def test_a_flood_leaves_the_loop_its_turns() -> None:
    seen, most, streams = 0, 0, []
    each = 30_000 // len(answer(2))

    def tap(messages: Sequence[bytes]) -> int:
        nonlocal seen
        seen += len(messages)
        return len(messages)

    async def attack(peer: Peer, stream: int) -> None:
        streams.append(stream)
        peer.send(peer.headers(stream), frame(DATA, 0, stream, answer(1)))
        if len(streams) == 7:
            await reading.wait()
            flood = [frame(DATA, 0, one, answer(2)) for one in streams] * each
            peer.send(*flood, *map(peer.trailers, streams))

    async def read(call: InferCall) -> None:
        assert await call.read() is not None
        call.tap = tap
        if all(call.tap for call in calls):
            reading.set()
        assert await call.read() is None

    reading = asyncio.Event()
    async with served(attack) as (_, transport):
        calls = [transport.infer(ask("bad"), timeout=60) for _ in range(7)]
        readers = asyncio.gather(*map(read, calls))
        while not readers.done():
            before = seen
            await asyncio.sleep(0)
            most = max(most, seen - before)
        await readers
    assert seen == 7 * each
    assert most * len(answer(2)) <= 2**15


async def test_a_tap_that_raises_fails_its_own_request() -> None:
    def tap(messages: Sequence[bytes]) -> int:
        raise ArithmeticError(len(messages))

    streams: list[int] = []

    async def attack(peer: Peer, stream: int) -> None:
        streams.append(stream)
        peer.send(peer.headers(stream), frame(DATA, 0, stream, answer(1)))
        if len(streams) == 2:
            await reading.wait()
            peer.send(*[frame(DATA, 0, one, answer(2)) for one in streams], *map(peer.trailers, streams))

    reading = asyncio.Event()
    async with served(attack) as (server, transport):
        bad, good = (transport.infer(ask("bad"), timeout=20) for _ in range(2))
        for call in (bad, good):
            await call.read()
        bad.tap = tap
        readers = [asyncio.ensure_future(call.read()) for call in (bad, good)]
        await asyncio.sleep(0)  # let them wait
        reading.set()
        with pytest.raises(ArithmeticError):
            await asyncio.wait_for(readers[0], 20)
        assert await asyncio.wait_for(readers[1], 20) == answer(2)[5:]
        assert await good.read() is None
        assert len(server.peers) == 1
