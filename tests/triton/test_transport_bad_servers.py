"""Both transports against servers that break the protocol: an error for whom it concerns, and for nobody else.

Each attack is the answer to one request, while another one (the bystander) is halfway through its answer on the same
connection.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterable
from typing import Any

import pytest
from raw_http2 import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PADDED,
    PING,
    PUSH,
    RST,
    SETTINGS,
    WINDOW,
    Attack,
    Peer,
    RawServer,
    answer,
    frame,
    message,
)

from gateway.generation.engine import EngineError, ErrorKind
from gateway.triton.response_stream import ResponseStream
from gateway.triton.transport import TransportError
from gateway.triton.transports import TransportName
from tests.triton.calls import ask, begun, connected, eventually, failure, of, read_all

ANY_FAILURE = {"INTERNAL", "UNAVAILABLE", "UNKNOWN", "CANCELLED"}


def says(*parts: Any) -> Attack:
    """An attack by bytes; a function is called with the peer and the stream."""

    async def attack(peer: Peer, stream: int) -> None:
        for part in parts:
            peer.send(part(peer, stream) if callable(part) else part)

    return attack


def headers(peer: Peer, stream: int) -> bytes:
    return peer.headers(stream)


def trailers(peer: Peer, stream: int) -> bytes:
    return peer.trailers(stream)


def data(content: bytes, flags: int = 0) -> Any:
    return lambda _peer, stream: frame(DATA, flags, stream, content)


def fields(*pairs: tuple[str, str], flags: int = END_HEADERS | END_STREAM) -> Any:
    return lambda peer, stream: peer.headers(stream, *pairs, flags=flags)


def reset(code: int) -> Any:
    return lambda _peer, stream: frame(RST, 0, stream, struct.pack(">I", code))


HTML = fields((":status", "200"), ("content-type", "text/html"), flags=END_HEADERS)

# grpcio does not do here what the protocol asks for (it waits for the deadline, ends the whole connection, or has
# another status for it); h2 is held to it.
NOT_GRPCIO = {
    "a status that is no number", "HTTP 404 with a page", "the end within a message", "a message with an unknown flag",
    "a WINDOW_UPDATE frame with an increment of 0", "a frame beyond the limit", "data on the connection",
    "headers on the connection", "a push", "a connection window that overflows", "informational headers", "padding",
}  # fmt: skip

# What only this request suffers from, and the statuses that it may end with.
ONE_STREAM: dict[str, tuple[Attack, set[str]]] = {
    "no trailers": (says(headers, data(answer(1), END_STREAM)), {"UNKNOWN", "INTERNAL"}),
    "no trailers and no data": (says(headers, data(b"", END_STREAM)), {"UNKNOWN", "INTERNAL"}),
    "trailers without a status": (says(headers, fields(("x", "y"))), {"UNKNOWN"}),
    "a status that is no number": (says(headers, fields(("grpc-status", "no"))), {"UNKNOWN"}),
    "a status that does not exist": (says(headers, fields(("grpc-status", "99"))), {"UNKNOWN"}),
    "trailers only": (says(fields((":status", "200"), ("content-type", "application/grpc"), ("grpc-status", "3"))),
                      {"INVALID_ARGUMENT"}),
    "HTTP 503": (says(fields((":status", "503"))), {"UNAVAILABLE"}),
    "HTTP 401": (says(fields((":status", "401"))), {"UNAUTHENTICATED"}),
    "HTTP 404 with a page": (says(fields((":status", "404"), flags=END_HEADERS), data(b"<html>", END_STREAM)),
                             {"UNIMPLEMENTED"}),
    "a page": (says(HTML, data(b"<html>", END_STREAM)), {"UNKNOWN", "INTERNAL"}),
    "reset": (says(headers, data(answer(1)), reset(2)), {"INTERNAL"}),
    "reset as cancelled": (says(headers, reset(8)), {"CANCELLED"}),
    "reset for calm": (says(headers, reset(11)), {"RESOURCE_EXHAUSTED"}),
    "reset for an unknown reason": (says(headers, reset(999)), {"INTERNAL", "UNKNOWN"}),
    "reset within a message": (says(headers, data(answer(1)[:8]), reset(2)), {"INTERNAL"}),
    "the end within a message": (says(headers, data(answer(1)[:8]), trailers), {"INTERNAL"}),
    "a compressed message": (says(headers, data(message(b"\x1f\x8b", flag=1))), {"INTERNAL", "UNIMPLEMENTED"}),
    "a message with an unknown flag": (says(headers, data(message(b"", flag=7))), {"INTERNAL"}),
    "a message beyond the limit": (says(headers, data(message(b"", length=2**31))), {"RESOURCE_EXHAUSTED"}),
    "a WINDOW_UPDATE frame with an increment of 0": (says(headers, lambda _peer,
                                                          stream: frame(WINDOW, 0, stream, bytes(4)), trailers),
                                                     {"INTERNAL"}),
}  # fmt: skip

# What nothing can be understood after.
CONNECTION: dict[str, Attack] = {
    "garbage": says(headers, b"\x47\x41\x52\x42" * 5_000),
    "a frame beyond the limit": says(headers, lambda _p, s: frame(DATA, 0, s, bytes(20_000))),
    "data on the connection": says(frame(DATA, 0, 0, b"x")),
    "headers on the connection": says(frame(HEADERS, END_HEADERS, 0, b"\x88")),
    "a reset of the wrong size": says(lambda _p, s: frame(RST, 0, s, b"12345")),
    "settings of a wrong size": says(frame(SETTINGS, 0, 0, b"12345")),
    "settings on a stream": says(lambda _p, s: frame(SETTINGS, 0, s)),
    "an initial window that is too large": says(frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 2**31))),
    "frames that are too small": says(frame(SETTINGS, 0, 0, struct.pack(">HI", 5, 100))),
    "a ping of a wrong size": says(frame(PING, 0, 0, b"1234567")),
    "a push": says(lambda p, s: frame(PUSH, END_HEADERS, s, struct.pack(">I", 2) + p.encode((":method", "GET")))),
    "a connection window that overflows": says(*[frame(WINDOW, 0, 0, struct.pack(">I", 2**31 - 1))] * 2),
    "headers that cannot be decoded": says(lambda _p, s: frame(HEADERS, END_HEADERS, s, b"\xff\xff\xff\xff\xff")),
    "a header block that is interrupted": says(lambda _p, s: frame(HEADERS, 0, s, b""), frame(PING, 0, 0, bytes(8))),
    "a continuation of nothing": says(lambda _p, s: frame(CONTINUATION, END_HEADERS, s, b"")),
    "headers with more padding than payload": says(lambda _p, s: frame(HEADERS, PADDED | END_HEADERS, s, b"\x09\x88")),
    "the connection ends within a frame": says(headers, lambda _p, s: frame(DATA, 0, s, b"ab", length=99)),
}


def with_transports(names: Iterable[str]) -> pytest.MarkDecorator:
    """Each case by the transports that it holds for."""
    cases = [(each, name) for name in names for each in ("grpcio", "h2") if each == "h2" or name not in NOT_GRPCIO]
    return pytest.mark.parametrize(("transport_name", "name"), cases)


@with_transports(ONE_STREAM)
async def test_one_stream_suffers(transport_name: TransportName, name: str) -> None:
    attack, statuses = ONE_STREAM[name]
    async with RawServer(attack) as server, connected(transport_name, server.url) as transport:
        bystander = await begun(transport)
        assert (await failure(transport.infer(ask("bad"), timeout=20))).status in statuses
        assert len(await read_all(bystander)) == 1
        assert len(await read_all(transport.infer(ask("good"), timeout=20))) == 1
        assert len(server.peers) == 1


@with_transports(CONNECTION)
async def test_the_connection_is_dropped_and_another_one_found(transport_name: TransportName, name: str) -> None:
    async def attack(peer: Peer, stream: int) -> None:
        await CONNECTION[name](peer, stream)
        if "ends" in name:
            peer.drop()

    async with RawServer(attack) as server, connected(transport_name, server.url) as transport:
        bystander = await begun(transport)
        assert (await failure(transport.infer(ask("bad"), timeout=20))).status in ANY_FAILURE
        assert (await failure(bystander)).status in ANY_FAILURE
        assert len(await eventually(transport, "UNAVAILABLE", "INTERNAL", name="good")) == 1
        assert len(server.peers) == 2


HARMLESS: dict[str, Attack] = {
    "unknown frames": says(frame(0x77, 0xFF, 0, b"abc"), lambda _p, s: frame(0x78, 0xFF, s, bytes(16_384))),
    "priority": says(lambda _p, s: frame(2, 0, s, bytes(5))),
    "settings that mean nothing": says(frame(SETTINGS, 0, 0, struct.pack(">HIHI", 0x99, 5, 8, 1))),
    "a smaller table of headers": says(frame(SETTINGS, 0, 0, struct.pack(">HIHI", 1, 0, 1, 100))),
    "smaller and larger windows": says(
        frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 0)), frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 2**20))
    ),
    "pings": says(*[frame(PING, 0, 0, bytes(8))] * 20),
    "padding": says(headers, lambda _p, s: frame(DATA, PADDED, s, b"\x05" + bytes(5))),
    "informational headers": says(fields((":status", "103"), flags=END_HEADERS)),
}


@with_transports(HARMLESS)
async def test_what_harms_nobody(transport_name: TransportName, name: str) -> None:
    async def attack(peer: Peer, stream: int) -> None:
        await HARMLESS[name](peer, stream)
        if name != "padding":
            peer.send(peer.headers(stream))
        peer.send(frame(DATA, 0, stream, b""), frame(DATA, 0, stream, answer(1)))
        whole = answer(2) + answer(3) + answer(4)
        peer.send(*(frame(DATA, 0, stream, whole[n : n + 1]) for n in range(len(whole))))
        peer.send(peer.trailers(stream))

    async with RawServer(attack) as server, connected(transport_name, server.url) as transport:
        bystander = await begun(transport)
        assert len(await read_all(transport.infer(ask("bad"), timeout=20))) == 4
        assert len(await read_all(bystander)) == 1
        assert len(await read_all(transport.infer(ask("good"), timeout=20))) == 1
        assert len(server.peers) == 1


async def test_a_stalled_server_ends_at_the_deadline(transport_name: TransportName) -> None:
    async def attack(peer: Peer, stream: int) -> None:
        peer.silent = True
        peer.send(peer.headers(stream), frame(DATA, 0, stream, answer(1)[:6]))

    async with RawServer(attack) as server, connected(transport_name, server.url) as transport:
        assert (await failure(transport.infer(ask("bad"), timeout=0.3))).status == "DEADLINE_EXCEEDED"
        await server.until(
            lambda: any(kind == RST and payload[3] == 8 for kind, _, _, payload in server.peers[0].frames)
        )


@pytest.mark.parametrize(
    "greeting",
    [b"HTTP/1.1 400 Bad Request\r\n\r\n", bytes(64), b"\xff" * 64, frame(SETTINGS, 1, 0), frame(PING, 0, 0, bytes(8))],
)
async def test_something_else_listens(transport_name: TransportName, greeting: bytes) -> None:
    async with RawServer(says(), greeting) as server, connected(transport_name, server.url) as transport:
        assert (await failure(transport.infer(ask("good"), timeout=10))).status in ("UNAVAILABLE", "DEADLINE_EXCEEDED")
        server.greeting = frame(SETTINGS, 0, 0)
        assert len(await eventually(transport, "UNAVAILABLE", "INTERNAL", name="good")) == 1


async def test_more_requests_than_the_server_permits_at_a_time(transport_name: TransportName) -> None:
    running: set[int] = set()
    most = 0

    async def attack(peer: Peer, stream: int) -> None:
        nonlocal most
        running.add(stream)
        most = max(most, len(running))
        peer.send(peer.headers(stream), frame(DATA, 0, stream, answer(1)))
        if len(running) == 3 or stream > 30:
            for each in sorted(running):
                peer.send(peer.trailers(each))
            running.clear()

    greeting = frame(SETTINGS, 0, 0, struct.pack(">HI", 3, 3))
    async with RawServer(attack, greeting) as server, connected(transport_name, server.url) as transport:
        assert len(await read_all(transport.infer(ask("good"), timeout=20))) == 1
        calls = [transport.infer(ask("bad"), timeout=20) for _ in range(19)]
        calls[10].cancel()  # one that waits for its turn
        results = await asyncio.gather(*(read_all(call) for call in calls), return_exceptions=True)
        cancelled = results.pop(10)
        assert isinstance(cancelled, TransportError)
        assert cancelled.status == "CANCELLED"
        assert [len(answers) for answers in results] == [1] * 18
        assert most == 3


async def test_a_response_that_is_no_response_is_an_error_of_its_request_alone(transport_name: TransportName) -> None:
    attack = says(headers, data(message(b"\xff\xff\xff")), trailers)
    async with RawServer(attack) as server, connected(transport_name, server.url) as transport:
        with pytest.raises(EngineError, check=of(ErrorKind.INTERNAL)):
            await ResponseStream(transport.infer(ask("bad"), timeout=20)).read()
        assert len(await read_all(transport.infer(ask("good"), timeout=20))) == 1
