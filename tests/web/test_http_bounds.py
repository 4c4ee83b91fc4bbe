"""What a client may send, how long it may take for it, and what it is told beyond that."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import tracemalloc
from collections.abc import AsyncIterator
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from gateway.http.access_log import record_of
from gateway.http.http_protocol import HttpLimits, http_protocol
from tests.web.served import reject, served

CHUNKED = b"POST /whole HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
GET = b"GET /whole HTTP/1.1\r\nHost: x\r\n\r\n"


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Tells what it got: the names of the headers, and the sizes of the pieces of the body.

    ``/early`` answers before it has read anything, ``/gated`` when it is let.
    """
    pieces = []
    more = scope["path"] != "/early"
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        pieces.append(len(message["body"]))
        more = message["more_body"]
    if scope["path"] == "/gated":
        await scope["state"]["gate"].wait()
    told = json.dumps([[name.decode() for name, _ in scope["headers"]], pieces]).encode()
    length = (b"content-length", b"%d" % len(told))
    await send({"type": "http.response.start", "status": 200, "headers": [length]})
    await send({"type": "http.response.body", "body": told})


@contextlib.asynccontextmanager
async def serving(bounds: HttpLimits | None = None, gate: asyncio.Event | None = None) -> AsyncIterator[int]:
    async def with_gate(scope: Scope, receive: Receive, send: Send) -> None:
        scope["state"]["gate"] = gate
        await app(scope, receive, send)

    async with served(with_gate, http_protocol(reject, bounds), timeout_keep_alive=30) as port:
        yield port


@pytest.fixture
async def port() -> AsyncIterator[int]:
    async with serving() as port:
        yield port


class Client:
    """A connection that is written to by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @staticmethod
    async def of(port: int) -> Client:
        return Client(*await asyncio.open_connection("127.0.0.1", port))

    async def answer(self) -> tuple[int, dict[str, str], object]:
        """Status, headers and JSON of the next answer."""
        head = (await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), 20)).decode()
        status, *lines = head.removesuffix("\r\n\r\n").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = await self.reader.readexactly(int(headers["content-length"]))
        return int(status.split()[1]), headers, json.loads(body)

    async def ended(self) -> bool:
        """Whether nothing more comes, and the connection ends."""
        try:
            return await asyncio.wait_for(self.reader.read(), 20) == b""
        except ConnectionError:
            return True
        finally:
            self.writer.close()

    async def flood(self, piece: bytes, most: int) -> int:
        """Send a piece again and again until the connection ends; bytes that were sent."""
        sent = 0
        try:
            while sent < most:
                self.writer.write(piece)
                sent += len(piece)
                await self.writer.drain()
        except ConnectionError:
            pass
        return sent


async def exchange(port: int, sent: bytes) -> tuple[int, dict[str, str], object]:
    client = await Client.of(port)
    client.writer.write(sent)
    try:
        return await client.answer()
    finally:
        client.writer.close()


TRAILERS = b"".join(b"name-%d: value\r\n" % number for number in range(4000))


@pytest.mark.parametrize("path", [b"/whole", b"/early"])
@pytest.mark.parametrize("piece", [TRAILERS, b"a" * 65536], ids=["lines", "one line"])
async def test_trailers_take_no_memory(port: int, path: bytes, piece: bytes) -> None:
    """Also after an early answer, such as 401."""
    client = await Client.of(port)
    client.writer.write(CHUNKED.replace(b"/whole", path) + b"0\r\n")
    if path == b"/early":
        assert (await client.answer())[0] == 200
    tracemalloc.start()
    try:
        sent = await client.flood(piece, 20_000_000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sent < 20_000_000
    assert peak < 4_000_000
    await client.ended()


@pytest.mark.parametrize("tail", [b"0\r\nname: ", b"0;name=", b"0" * 9], ids=["trailer", "extension", "size"])
async def test_what_surrounds_a_body_is_bounded_like_a_head(port: int, tail: bytes) -> None:
    client = await Client.of(port)
    client.writer.write(CHUNKED + tail)
    await exchange(port, GET)  # by then that was read
    client.writer.write(b"0" * 65537)
    status, headers, told = await client.answer()
    assert status == 431
    assert headers["connection"] == "close"
    what = "The trailers or a chunk header of the request"
    assert told == [431, f"{what} are larger than the limit of 64 KiB."]
    assert await client.ended()


async def test_trailers_are_dropped(port: int) -> None:
    client = await Client.of(port)
    trailers = b"authorization: Bearer stolen\r\nhost: y\r\nexpect: 100-continue\r\n\r\n"
    client.writer.write(CHUNKED + b"3\r\nabc\r\n0\r\n" + trailers)
    assert (await client.answer())[2] == [["host", "transfer-encoding"], [3]]
    client.writer.write(GET)
    assert (await client.answer())[2] == [["host"], [0]]
    client.writer.close()


async def test_a_large_body_in_many_chunks_is_served(port: int) -> None:
    body = b"".join(b"%x\r\n%b\r\n" % (size, b"x" * size) for size in [1, 7, 70_000] * 20)
    status, _, told = await exchange(port, CHUNKED + body + b"0\r\n\r\n")
    assert status == 200
    assert isinstance(told, list)
    assert sum(told[1]) == 20 * 70_008


async def test_an_application_gets_a_trickling_body_at_once(port: int) -> None:
    """Each piece that it gets costs it an object, and a turn."""
    client = await Client.of(port)
    client.writer.write(b"POST /whole HTTP/1.1\r\nHost: x\r\nContent-Length: 300\r\n\r\n")
    for _ in range(300):
        client.writer.write(b"x")
        await asyncio.sleep(0)
    assert (await client.answer())[2] == [["host", "content-length"], [300]]
    client.writer.close()


ONE_HOST = "A request must have exactly one 'Host' header, but this request has"
CODED = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: "
UNKNOWN_CODING = "Unsupported 'Transfer-Encoding': only 'chunked' is accepted."


@pytest.mark.parametrize(
    ("head", "told"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", f"{ONE_HOST} 0."),
        (b"GET / HTTP/1.1\r\nHost: x\r\nhost: x\r\n\r\n", f"{ONE_HOST} 2."),
        (b"GET / HTTP/1.0\r\nHost: x\r\nhost: y\r\n\r\n", f"{ONE_HOST} 2."),
        (CODED + b"gzip, chunked\r\n\r\n", UNKNOWN_CODING),
        (CODED + b"gzip\r\nTransfer-Encoding: chunked\r\n\r\n", UNKNOWN_CODING),
    ],
)
async def test_a_head_that_leaves_open_whom_it_is_for_or_where_it_ends_is_refused(
    port: int, head: bytes, told: str
) -> None:
    status, headers, body = await exchange(port, head)
    assert (status, body) == (400, [400, told])
    assert headers["connection"] == "close"


@pytest.mark.parametrize(
    "sent",
    [*(CODED + coding + b"\r\n\r\n" for coding in (b"gzip", b"identity", b"x")), CHUNKED + b"1\r\na\r\nno size\r\n"],
)
async def test_a_body_without_an_end_or_that_breaks_is_refused(port: int, sent: bytes) -> None:
    assert (await exchange(port, sent))[0] == 400


@pytest.mark.parametrize(
    "head",
    [b"GET /whole HTTP/1.0\r\n\r\n", b"GET /whole HTTP/1.1\r\nHost:\r\n\r\n", b"\r\n\r\n" + GET],
    ids=["HTTP/1.0", "empty host", "empty lines"],
)
async def test_a_head_that_is_right_is_served(port: int, head: bytes) -> None:
    assert (await exchange(port, head))[0] == 200


@pytest.mark.parametrize("pieces", [1, 2])
@pytest.mark.parametrize("garbage", [b"\x00\x01\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n"])
async def test_what_follows_a_request_does_not_take_its_answer(garbage: bytes, pieces: int) -> None:
    gate = asyncio.Event()
    async with serving(gate=gate) as port:
        client = await Client.of(port)
        request = GET.replace(b"/whole", b"/gated")
        if pieces == 1:
            client.writer.write(request * 3 + garbage)
        else:
            client.writer.write(request * 3)
            await client.writer.drain()
            client.writer.write(garbage)
        other = await exchange(port, GET)  # by then the first connection was read
        gate.set()
        for _ in range(3):
            assert (await client.answer())[::2] == other[::2]
        status, headers, _ = await client.answer()
        assert status == 400
        assert headers["connection"] == "close"
        assert await client.ended()


async def test_a_request_whose_body_breaks_does_not_take_the_answers_before_it() -> None:
    gate = asyncio.Event()
    async with serving(gate=gate) as port:
        client = await Client.of(port)
        client.writer.write(GET.replace(b"/whole", b"/gated") * 2 + CHUNKED + b"no size\r\n")
        await exchange(port, GET)
        gate.set()
        assert [(await client.answer())[0] for _ in range(3)] == [200, 200, 400]
        assert await client.ended()


async def test_requests_that_wait_on_a_connection_are_bounded() -> None:
    gate = asyncio.Event()
    async with serving(gate=gate) as port:
        client = await Client.of(port)
        client.writer.write(GET.replace(b"/whole", b"/gated") + GET * 5000)
        await exchange(port, GET)
        gate.set()
        answers = [await client.answer() for _ in range(65)]
        assert {status for status, _, _ in answers} == {200}
        assert "connection" not in answers[-2][1]
        assert answers[-1][1]["connection"] == "close"  # so that the client asks for the others again
        assert await client.ended()


async def trickle(client: Client, piece: bytes) -> None:
    """Send a piece again and again, until the connection ends."""
    with contextlib.suppress(ConnectionError):
        while not client.reader.at_eof():
            client.writer.write(piece)
            await client.writer.drain()
            await asyncio.sleep(0.02)


LATE_HEAD = "The request line and headers were not complete after 0.4 seconds."
SLOW_BODY = "The request was not complete after 0.5 seconds and arrived at less than 1000 bytes per second."


@pytest.mark.parametrize(
    ("begin", "piece", "told"),
    [
        (b"GET /", b"a", LATE_HEAD),
        (b"GET / HTTP/1.1\r\n", b"a:b\r\n", LATE_HEAD),
        (b"POST /whole HTTP/1.1\r\nHost: x\r\nContent-Length: 999999\r\n\r\n", b"a", SLOW_BODY),
        (CHUNKED, b"1\r\na\r\n", SLOW_BODY),
    ],
    ids=["line", "headers", "body", "chunks"],
)
async def test_a_request_that_trickles_is_ended(begin: bytes, piece: bytes, told: str) -> None:
    async with serving(HttpLimits(head_s=0.4, body_s=0.5, body_rate=1000, silence_s=9)) as port:
        client = await Client.of(port)
        client.writer.write(begin)
        sending = asyncio.create_task(trickle(client, piece))
        status, headers, body = await client.answer()
        assert (status, body) == (408, [408, told])
        assert headers["connection"] == "close"
        assert await client.ended()
        await sending


async def test_a_body_that_comes_fast_enough_is_served() -> None:
    async with serving(HttpLimits(head_s=9, body_s=0.1, body_rate=1000, silence_s=9)) as port:
        client = await Client.of(port)
        client.writer.write(b"POST /whole HTTP/1.1\r\nHost: x\r\nContent-Length: 20000\r\n\r\n")
        for _ in range(20):
            client.writer.write(b"x" * 1000)
            await asyncio.sleep(0.02)
        assert (await client.answer())[0] == 200
        client.writer.close()


@pytest.mark.parametrize("piece", [b"1\r\na\r\n", b"ffff\r\n" + b"a" * 0xFFFF + b"\r\n"], ids=["slowly", "fast"])
async def test_a_body_without_end_after_an_early_answer_is_ended(piece: bytes) -> None:
    async with serving(HttpLimits(head_s=9, body_s=0.3, body_rate=1000)) as port:
        client = await Client.of(port)
        client.writer.write(CHUNKED.replace(b"/whole", b"/early"))
        assert (await client.answer())[0] == 200
        await asyncio.wait_for(trickle(client, piece), 20)
        assert await client.ended()


async def test_empty_lines_do_not_keep_a_connection() -> None:
    async with served(app, http_protocol(reject), timeout_keep_alive=1) as port:
        client = await Client.of(port)
        client.writer.write(GET)
        assert (await client.answer())[0] == 200
        await asyncio.wait_for(trickle(client, b"\r\n"), 20)
        assert await client.ended()


async def test_connections_are_bounded() -> None:
    async with serving(HttpLimits(connections=2)) as port:
        first, second, third = [await Client.of(port) for _ in range(3)]
        for client in (first, second):
            client.writer.write(GET)
            assert (await client.answer())[0] == 200
        third.writer.write(GET)
        status, headers, body = await third.answer()
        assert (status, headers["retry-after"], headers["connection"]) == (503, "1", "close")
        assert body == [
            503,
            "The gateway has reached its limit of connections (limits.max_connections); try again in a moment.",
        ]
        assert await third.ended()
        first.writer.write(GET)  # those that were there are served on
        assert (await first.answer())[0] == 200
        second.writer.write(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        assert (await second.answer())[0] == 200
        assert await second.ended()
        assert (await exchange(port, GET))[0] == 200  # and there is room again
        first.writer.close()


async def test_clients_who_are_turned_away_are_bounded_too() -> None:
    async with serving(HttpLimits(connections=1)) as port:
        served_one = await Client.of(port)
        served_one.writer.write(GET)
        assert (await served_one.answer())[0] == 200
        silent = [await Client.of(port) for _ in range(200)]
        for client in silent:
            client.writer.write(GET)
        told = 0
        for client in silent:
            with contextlib.suppress(ConnectionError):
                told += b" 503 " in await asyncio.wait_for(client.reader.read(), 20)
            client.writer.close()
        assert told <= 64  # the others were cut off, and cost nothing while they were silent
        served_one.writer.write(GET)
        assert (await served_one.answer())[0] == 200
        served_one.writer.close()


@pytest.mark.parametrize("reads", [False, True])
async def test_a_client_that_does_not_read_its_answer_is_cut_off(reads: bool, caplog: pytest.LogCaptureFixture) -> None:
    """One that reads slowly is not; the log names the request."""
    ended = asyncio.Event()
    piece, count = b"x" * 65536, 64
    protocol: Any = http_protocol(reject, HttpLimits(unread_s=0.2))

    class SmallBuffer(protocol):  # type: ignore[misc] # made for the test
        """A kernel that reports what a client reads in small steps, not of a megabyte."""

        def connection_made(self, transport: asyncio.Transport) -> None:
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**17)
            super().connection_made(transport)

    async def streams(scope: Scope, receive: Receive, send: Send) -> None:
        del receive
        record_of(scope).request_id = "slow"
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(count):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
        ended.set()

    async with served(streams, SmallBuffer, timeout_keep_alive=30) as port:
        client = await Client.of(port)
        client.writer.write(GET)
        if not reads:
            await asyncio.wait_for(ended.wait(), 20)  # its application is let go, as when a client leaves
        got = 0
        with contextlib.suppress(ConnectionError):
            while data := await client.reader.read(2**18):
                got += len(data)
                if reads:
                    await asyncio.sleep(0.01)
                    if got > count * len(piece):
                        break
        assert (got > count * len(piece)) is reads
        told = [vars(line)["request_id"] for line in caplog.records if vars(line).get("event") == "client_cut_off"]
        assert told == ([] if reads else ["slow"])
        client.writer.close()
