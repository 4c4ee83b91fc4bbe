"""uvicorn with the project's protocol, and clients that stop in the middle of a request."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route

from gateway.http.client_connection import connection_of
from gateway.http.http_protocol import HttpLimits, http_protocol
from tests.web.served import answer_to, reject, served

PATIENCE_S = 0.3
BOUNDS = HttpLimits(head_s=3 * PATIENCE_S, body_s=10 * PATIENCE_S, silence_s=PATIENCE_S)
WHOLE = b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"


async def echo(request: Request) -> PlainTextResponse:
    return PlainTextResponse(await request.body())


async def slow(_: Request) -> StreamingResponse:
    async def parts() -> AsyncIterator[bytes]:
        for part in (b"one ", b"two ", b"three"):
            yield part
            await asyncio.sleep(PATIENCE_S)

    return StreamingResponse(parts(), headers={"content-length": "13"})


async def broken(request: Request) -> StreamingResponse:
    async def parts() -> AsyncIterator[bytes]:
        yield b"part"
        connection = connection_of(request.scope)
        assert connection is not None
        connection.close_soon()

    return StreamingResponse(parts())


@pytest.fixture
async def port() -> AsyncIterator[int]:
    app = Starlette(routes=[Route("/echo", echo, methods=["POST"]), Route("/slow", slow), Route("/broken", broken)])
    async with served(app, http_protocol(reject, BOUNDS), timeout_keep_alive=30) as port:
        yield port


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        (b"POST", "The request line and headers were not complete after 0.9 seconds."),
        (b"POST /echo HTTP/1.1\r\nHost: x\r\n", "The request line and headers were not complete after 0.9 seconds."),
        (WHOLE[:-2], "The request was not complete after 0.3 seconds of silence."),
    ],
    ids=["line", "headers", "body"],
)
async def test_a_request_that_stops_is_answered_and_closed(port: int, sent: bytes, told: str) -> None:
    head, _, body = (await answer_to(port, sent)).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
    assert json.loads(body) == [408, told]


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        (WHOLE + WHOLE[:-2], b"helloHTTP/1.1 408 "),
        (b"", b""),
        (b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n" + WHOLE[:9], b"one two threeHTTP/1.1 408 "),
        (b"GET /broken HTTP/1.1\r\nHost: x\r\n\r\n", b"0\r\n\r\n"),
    ],
    ids=["second request", "no request", "behind a running answer", "broken answer"],
)
async def test_a_connection_ends_with_what_it_owes(port: int, sent: bytes, told: bytes) -> None:
    answer = await answer_to(port, sent)
    assert answer[:15] == (b"HTTP/1.1 200 OK" if sent else b"")
    assert told in answer


async def test_a_slow_request_and_an_idle_connection_are_served(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for begin in range(0, len(WHOLE), 20):
        writer.write(WHOLE[begin : begin + 20])
        await asyncio.sleep(PATIENCE_S / 2)
    assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200 OK\r\n")
    await asyncio.sleep(2 * PATIENCE_S)  # between requests the server's keep-alive time holds
    writer.write(WHOLE)
    assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200 OK\r\n")
    writer.close()


async def test_what_follows_a_broken_answer_at_once_is_answered_before_the_connection_ends(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(b"GET /broken HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await reader.readuntil(b"0\r\n\r\n")).startswith(b"HTTP/1.1 200 OK\r\n")
        writer.write(WHOLE)
        answer = await asyncio.wait_for(reader.read(), 20)
    finally:
        writer.close()
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"\r\nconnection: close\r\n" in answer
    assert answer.endswith(b"hello")


INNER = b"GET /broken HTTP/1.1\r\nHost: x\r\n\r\n"
OFFER = b"POST /echo HTTP/1.1\r\nHost: x\r\nConnection: %s\r\nUpgrade: h2c\r\nContent-Length: %d\r\n\r\n"
HEAD = OFFER % (b"Upgrade", len(INNER))
LAST = OFFER % (b"close, Upgrade", len(INNER))


async def answers_to_packets(port: int, packets: list[bytes]) -> list[bytes]:
    """Status lines and bodies of all answers; the server reads the packets one by one."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for packet in packets:
            writer.write(packet)  # at once to the server, which runs on this loop
            for _ in range(10):
                await asyncio.sleep(0)
        said = await asyncio.wait_for(reader.read(), 20)
    finally:
        writer.close()
    return re.split(rb"(?s)HTTP/1\.1 (\d+).*?\r\n\r\n", said)[1:]


@pytest.mark.parametrize("name", [b"Upgrade", b"UPGRADE", b"uPGrade"])
@pytest.mark.parametrize("pieces", [1, 2])
async def test_an_offer_of_another_protocol_is_passed_over_in_any_case(port: int, name: bytes, pieces: int) -> None:
    head = LAST.replace(b"Upgrade", name)
    answers = await answers_to_packets(port, [head + INNER] if pieces == 1 else [head, INNER])
    assert answers == [b"200", INNER]


@pytest.mark.parametrize(
    ("packets", "statuses"),
    [
        ([HEAD[: HEAD.index(b"ade: h2c")], HEAD[HEAD.index(b"ade: h2c") :], INNER], [b"400"]),
        ([HEAD[: HEAD.index(b"ade: h2c")], HEAD[HEAD.index(b"ade: h2c") :] + INNER + WHOLE], [b"400"]),
        ([WHOLE + HEAD, INNER], [b"200", b"400"]),
        ([WHOLE + HEAD + INNER + WHOLE], [b"200", b"400"]),
        ([b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n", WHOLE], [b"400"]),
    ],
    ids=["split", "split, with body", "pipelined", "pipelined, with body", "connect"],
)
async def test_no_body_behind_such_an_offer_is_taken_for_a_request(
    port: int, packets: list[bytes], statuses: list[bytes]
) -> None:
    answers = await answers_to_packets(port, packets)
    assert answers[::2] == statuses
    assert b"'Upgrade'" in answers[-1]


async def test_a_body_that_looks_like_such_an_offer_keeps_its_length(port: int) -> None:
    body = b"a\r\nupgrade: bcd"
    head = b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
    answers = await answers_to_packets(port, [head[:-2], head[-2:] + body, LAST + INNER])
    assert answers[::2] == [b"200", b"200"]
    assert len(answers[1]) == len(body)
    assert answers[3] == INNER
