"""h2 against a server that ends, defers and confuses by every means of HTTP/2: a right answer or a clean error."""

from __future__ import annotations

import asyncio
import gc
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest
from h2_peer import Wire, setting, u32
from raw_http2 import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PADDED,
    PING,
    RST,
    SETTINGS,
    WINDOW,
    Peer,
    RawServer,
    answer,
    frame,
    message,
    nothing,
    served,
)
from tritonclient.grpc import service_pb2

from gateway.triton.h2 import H2Transport
from gateway.triton.h2.asyncio_protocol import H2Protocol
from gateway.triton.h2.http2_streams import Http2Stream
from gateway.triton.h2.limits import Timing
from gateway.triton.transport import TransportError
from tests.triton.calls import ask, begun, failure, read_all
from tests.waiting import until

PRIORITIZED = 0x20
CODES = [0, 2, 7, 11]  # NO_ERROR, INTERNAL_ERROR, REFUSED_STREAM, ENHANCE_YOUR_CALM
NOT_YET = 2**31 - 1


def goaway(last: int, code: int = 0) -> bytes:
    return frame(GOAWAY, 0, 0, u32(last, code))


def whole(peer: Peer, stream: int) -> bytes:
    """An answer of one response."""
    return peer.headers(stream) + frame(DATA, 0, stream, answer(1)) + peer.trailers(stream)


# GOAWAY (RFC 9113, section 6.8)


@pytest.mark.parametrize("code", CODES)
async def test_goaway_before_a_request_sends_it_elsewhere(code: int) -> None:
    async with served(nothing) as (server, transport):
        assert len(await read_all(transport.infer(ask("good"), timeout=20))) == 1
        server.peers[0].send(goaway(1, code))
        await server.until(lambda: server.peers[0].closed)
        assert len(await read_all(transport.infer(ask("good"), timeout=20))) == 1
        assert len(server.peers) == 2


@pytest.mark.parametrize("code", CODES)
async def test_goaway_lets_the_streams_go_on_that_it_names(code: int) -> None:
    async def attack(peer: Peer, stream: int) -> None:
        peer.send(goaway(stream, code), whole(peer, stream))

    async with served(attack) as (server, transport):
        bystander = await begun(transport)
        assert len(await read_all(transport.infer(ask("bad"), timeout=20))) == 1
        assert len(await read_all(bystander)) == 1
        assert len(await read_all(transport.infer(ask("good"), timeout=20))) == 1
        assert len(server.peers) == 2


@pytest.mark.parametrize("code", CODES)
async def test_goaway_moves_the_streams_above_the_one_that_it_names(code: int) -> None:
    async def attack(peer: Peer, stream: int) -> None:
        first = len(server.peers) == 1
        peer.send(goaway(stream - 2, code) if first else whole(peer, stream))

    async with served(attack) as (server, transport):
        bystander = await begun(transport)
        assert len(await read_all(transport.infer(ask("bad"), timeout=20))) == 1
        assert len(await read_all(bystander)) == 1
        assert len(server.peers) == 2


async def test_a_graceful_shutdown_says_goaway_twice() -> None:
    lost: list[int] = []

    async def attack(peer: Peer, stream: int) -> None:
        if peer is not server.peers[0]:
            peer.send(whole(peer, stream))
        elif lost:  # on its way when the server made up its mind
            peer.send(goaway(lost[0]))
        else:
            lost.append(stream)
            peer.send(peer.headers(stream), frame(DATA, 0, stream, answer(1)))

    async with served(attack) as (server, transport):
        running = await begun(transport, "bad")
        late = transport.infer(ask("bad"), timeout=20)
        server.peers[0].send(goaway(NOT_YET))
        assert len(await read_all(late)) == 1
        assert len(await read_all(transport.infer(ask("good"), timeout=20))) == 1
        server.peers[0].send(frame(DATA, 0, lost[0], answer(2)), server.peers[0].trailers(lost[0]))
        assert len(await read_all(running)) == 1
        assert len(server.peers) == 2


# RST_STREAM (section 6.4), with gRPC's meaning of each code

RESET = dict.fromkeys(range(14), "INTERNAL") | {
    7: "UNAVAILABLE", 8: "CANCELLED", 11: "RESOURCE_EXHAUSTED", 12: "PERMISSION_DENIED", 2**32 - 1: "INTERNAL",
}  # fmt: skip


@pytest.mark.parametrize("code", RESET)
@pytest.mark.parametrize("when", ["within the answer", "within a message"])
async def test_a_reset_ends_its_stream_alone(code: int, when: str) -> None:
    async def attack(peer: Peer, stream: int) -> None:
        rest = answer(2)[:7] if when == "within a message" else b""
        peer.send(peer.headers(stream), frame(DATA, 0, stream, answer(1) + rest), frame(RST, 0, stream, u32(code)))

    async with served(attack) as (server, transport):
        bystander = await begun(transport)
        call = transport.infer(ask("bad"), timeout=20)
        assert await call.read() == answer(1)[5:]
        assert (await failure(call)).status == RESET[code]
        assert len(await read_all(bystander)) == 1
        assert len(server.peers) == 1


@pytest.mark.parametrize("code", RESET)
async def test_a_reset_instead_of_an_answer(code: int) -> None:
    asked = 0

    async def attack(peer: Peer, stream: int) -> None:
        nonlocal asked
        asked += 1
        peer.send(frame(RST, 0, stream, u32(code)) if asked == 1 else whole(peer, stream))

    async with served(attack) as (_, transport):
        bystander = await begun(transport)
        call = transport.infer(ask("bad"), timeout=20)
        if code == 7:  # refused: the server has done nothing for it
            assert len(await read_all(call)) == 1
        else:
            assert (await failure(call)).status == RESET[code]
        assert asked == (2 if code == 7 else 1)
        assert len(await read_all(bystander)) == 1


async def test_a_server_that_wants_no_more_of_a_prompt_has_answered_it() -> None:
    """It may end its answer early and reset the stream with NO_ERROR (section 8.1)."""
    wire = Wire()
    stream = wire.open(bytes(200_000))
    wire.sent()
    wire.gets(wire.data(stream, message(b"x")), wire.trailers(stream), frame(RST, 0, stream.id, u32(0)))
    assert wire.read_all(stream) == [b"x"]
    assert stream.status == ("OK", "")


# Concurrency (section 5.1.2)


class OneAtATime:
    """Answers nothing by itself; notes which streams were opened, in order, and that there is one at a time."""

    def __init__(self) -> None:
        self.opened: list[int] = []
        self.greeting = frame(SETTINGS, 0, 0, struct.pack(">HI", 3, 1))

    async def __call__(self, peer: Peer, stream: int) -> None:
        self.opened.append(stream)
        peer.send(peer.headers(stream), frame(DATA, 0, stream, answer(len(self.opened))))


def number_of(response: bytes | None) -> int:
    parsed = service_pb2.ModelStreamInferResponse.FromString(response)
    return int(struct.unpack("<i", parsed.infer_response.raw_output_contents[0])[0])


@pytest.mark.parametrize("end", ["cancel", "deadline", "reset", "error"])
async def test_however_a_request_ends_its_place_is_free(end: str) -> None:
    one = OneAtATime()
    async with served(one, one.greeting) as (server, transport):
        first = transport.infer(ask("bad"), timeout=0.2 if end == "deadline" else 20)
        waiting = [transport.infer(ask("bad"), timeout=20) for _ in range(3)]
        assert number_of(await first.read()) == 1
        waiting[0].cancel()  # leaves the queue
        peer = server.peers[0]
        if end == "cancel":
            first.cancel()
        elif end == "reset":
            peer.send(frame(RST, 0, one.opened[0], u32(2)))
        elif end == "error":
            peer.send(frame(DATA, 0, one.opened[0], message(b"", flag=9)))
        assert number_of(await asyncio.wait_for(waiting[1].read(), 20)) == 2
        peer.send(frame(SETTINGS, 0, 0, struct.pack(">HI", 3, 9)))  # more are permitted now
        assert number_of(await asyncio.wait_for(waiting[2].read(), 20)) == 3
        assert (await failure(waiting[0])).status == "CANCELLED"


async def test_a_server_that_permits_none_is_waited_for() -> None:
    greeting = frame(SETTINGS, 0, 0, struct.pack(">HI", 3, 0))
    async with served(nothing, greeting) as (server, transport):
        late = transport.infer(ask("good"), timeout=0.2)
        call = transport.infer(ask("good"), timeout=20)
        assert (await failure(late)).status == "DEADLINE_EXCEEDED"
        server.peers[0].send(frame(SETTINGS, 0, 0, struct.pack(">HI", 3, 1)))
        assert len(await read_all(call)) == 1


# Flow control (section 5.2), settings (6.5)


def test_settings_change_while_streams_run() -> None:
    wire = Wire()
    wire.gets(frame(WINDOW, 0, 0, u32(2**24)), setting(4, 2**20), setting(5, 2**20))
    first = wire.open(bytes(200_000), started=False)
    sizes = [len(each.payload) for each in wire.sent() if each.kind == DATA]
    assert max(sizes) > 16_384  # larger frames are permitted
    wire.gets(setting(5, 16_384), setting(3, 1), setting(1, 0))
    second = wire.open(bytes(100_000), started=False)
    assert not any(each.kind == HEADERS for each in wire.sent())
    wire.gets(wire.headers(first), wire.trailers(first))
    sizes = [len(each.payload) for each in wire.sent() if each.kind == DATA]
    assert max(sizes) == 16_384
    wire.gets(setting(4, 0), wire.headers(second), setting(4, 65_535), wire.trailers(second))
    assert second.status == ("OK", "")


# Header blocks (section 4.3)


async def test_headers_with_everything_that_frames_may_carry() -> None:
    async def attack(peer: Peer, stream: int) -> None:
        block = peer.encode((":status", "200"), ("content-type", "application/grpc"))
        first = bytes([3]) + bytes(5) + block[:1] + bytes(3)
        peer.send(frame(HEADERS, PADDED | PRIORITIZED, stream, first))
        peer.send(*(frame(CONTINUATION, 0, stream, block[n : n + 1]) for n in range(1, 10)))
        peer.send(frame(CONTINUATION, END_HEADERS, stream, block[10:]))
        peer.send(frame(DATA, PADDED, stream, b"\xff" + answer(1) + bytes(255)))
        trailers = bytes([9]) + peer.encode(("grpc-status", "0")) + bytes(9)
        peer.send(frame(HEADERS, PADDED | END_HEADERS | END_STREAM, stream, trailers))

    async with served(attack) as (_, transport):
        for _ in range(3):
            assert len(await read_all(transport.infer(ask("bad"), timeout=20))) == 1


@pytest.mark.parametrize("size", [30_000, 40_000])
async def test_a_list_of_headers_beyond_the_limit(size: int) -> None:
    async def attack(peer: Peer, stream: int) -> None:
        block = peer.encode((":status", "200"), ("content-type", "application/grpc"), ("x", "a" * size))
        parts = [block[n : n + 8_000] for n in range(0, len(block), 8_000)]
        peer.send(frame(HEADERS, 0, stream, parts[0]))
        peer.send(*(frame(CONTINUATION, 0, stream, part) for part in parts[1:]))
        peer.send(frame(CONTINUATION, END_HEADERS, stream))
        peer.send(frame(DATA, 0, stream, answer(1)), peer.trailers(stream))

    async with served(attack) as (_, transport):
        call = transport.infer(ask("bad"), timeout=20)
        if size == 30_000:
            assert len(await read_all(call)) == 1
        else:
            assert (await failure(call)).status == "UNAVAILABLE"
            assert len(await read_all(transport.infer(ask("good"), timeout=20))) == 1


# Broken servers

LAST_WORDS: dict[str, Callable[[Peer, int], bytes]] = {
    "nothing": lambda _peer, _stream: b"",
    "half a head": lambda _peer, stream: frame(DATA, 0, stream, b"")[:4],
    "a head": lambda _peer, stream: frame(DATA, 0, stream, b"", length=500),
    "half a message": lambda _peer, stream: frame(DATA, 0, stream, answer(1)[:8]),
    "half a header block": lambda _peer, stream: frame(HEADERS, END_STREAM, stream, b"\x88"),
    "an unknown frame's half": lambda _peer, stream: frame(0xEE, 0, stream, b"ab", length=16_000),
}


@pytest.mark.parametrize("last_words", LAST_WORDS)
async def test_a_server_that_falls_silent_is_left(last_words: str) -> None:
    async def attack(peer: Peer, stream: int) -> None:
        if last_words != "half a header block":
            peer.send(peer.headers(stream))
        peer.send(LAST_WORDS[last_words](peer, stream))
        peer.silent = True

    async with served(attack, timing=Timing(keepalive=0.05, keepalive_timeout=0.1)) as (server, transport):
        assert (await failure(transport.infer(ask("bad"), timeout=20))).status == "UNAVAILABLE"
        assert len(await read_all(transport.infer(ask("good"), timeout=20))) == 1
        assert len(server.peers) == 2


async def test_nothing_is_left_of_any_of_it() -> None:
    async def attack(peer: Peer, stream: int) -> None:
        ways: list[Callable[[], Awaitable[None] | None]] = [
            lambda: peer.send(whole(peer, stream)),
            lambda: peer.send(frame(RST, 0, stream, u32(2))),
            lambda: peer.send(goaway(stream), whole(peer, stream)),
            lambda: peer.send(b"garbage" * 100),
            lambda: peer.send(peer.headers(stream), frame(DATA, 0, stream, answer(1)[:6])),
            lambda: peer.send(frame(PING, 0, 0, bytes(8)) * 50, whole(peer, stream)),
            peer.drop,
        ]
        ways[next_way % len(ways)]()

    def left() -> tuple[int, int, int]:
        gc.collect()
        kept = [each for each in gc.get_objects() if isinstance(each, Http2Stream | H2Protocol)]
        return len(asyncio.all_tasks()), len(list(Path("/proc/self/fd").iterdir())), len(kept)

    async def go(url: str) -> None:
        transport = H2Transport(url, timing=Timing(first_backoff=0, last_backoff=0))
        with suppress(TransportError):
            await read_all(transport.infer(ask("bad"), timeout=0.05))
        await transport.close()

    next_way = 0
    gc.collect()
    gc.freeze()  # what other tests have made is not looked at time and again
    async with RawServer(attack) as server:
        before = left()
        for next_way in range(70):  # noqa: B007 - read above
            await go(server.url)
            await server.until(lambda: all(peer.closed for peer in server.peers))
        await until(lambda: left() == before)
