"""uvicorn with the project's protocol, and clients that stop in the middle of a request, or leave: work ends once."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from fastapi import APIRouter, FastAPI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from gateway.http.access_log import AccessLogMiddleware
from gateway.http.client_connection import ClientDisconnectedError, connection_of, while_connected
from gateway.http.http_protocol import HttpLimits, http_protocol
from gateway.http.routing import DirectRoute
from gateway.http.sse import COMMENT, EventStream
from gateway.telemetry.metrics import Metrics
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


REQUEST = b"GET /%b HTTP/1.1\r\nHost: x\r\n\r\n"


class Work:
    """What the routes do, and what became of it."""

    def __init__(self) -> None:
        self.arrived = asyncio.Event()
        self.begun = asyncio.Event()
        self.cleaned = asyncio.Event()
        self.wrongly_begun = False

    async def stream(self, _: Request) -> Response:
        async def events() -> AsyncGenerator[bytes, None]:
            try:
                while True:
                    yield COMMENT
                    self.begun.set()
                    await asyncio.sleep(0.01)
            finally:
                await asyncio.sleep(0)  # a clean-up that awaits is not cut off
                self.cleaned.set()

        return EventStream(events())

    async def whole(self, request: Request) -> Response:
        async def wait() -> None:
            self.begun.set()
            await asyncio.Event().wait()

        try:
            await while_connected(request.scope, request.receive, wait())
        except ClientDisconnectedError:
            task = asyncio.current_task()
            assert task is not None
            assert not getattr(task, "cancelling", int)()  # the outer task has not been cancelled
            self.cleaned.set()
        return Response()

    async def posted(self, request: Request) -> Response:
        self.arrived.set()
        await request.body()
        return await self.whole(request)

    async def late(self, request: Request) -> Response:
        """Begins when the client has left."""
        self.begun.set()
        connection = connection_of(request.scope)
        assert connection is not None
        left = asyncio.Event()
        connection.on_lost.append(left.set)
        await left.wait()

        async def never() -> None:
            self.wrongly_begun = True

        with pytest.raises(ClientDisconnectedError):
            await while_connected(request.scope, request.receive, never())
        self.cleaned.set()
        return Response()


@pytest.fixture
async def work() -> Work:
    return Work()


@pytest.fixture
async def work_port(work: Work) -> AsyncIterator[int]:
    routes = [Route(f"/{name}", getattr(work, name)) for name in ("stream", "whole", "late")]
    app = Starlette(routes=[*routes, Route("/posted", work.posted, methods=["POST"])])
    protocol = http_protocol(lambda status, message, _: Response(message, status))
    async with served(app, protocol) as work_port:
        yield work_port


@pytest.mark.parametrize("name", [b"stream", b"whole", b"late"])
async def test_work_ends_with_its_client(work_port: int, work: Work, name: bytes) -> None:
    await leave(work_port, work, REQUEST % name)
    assert not work.wrongly_begun


@pytest.mark.parametrize("size", [100_000, 3_000_000])
async def test_work_for_a_large_body_ends_with_its_client(work_port: int, work: Work, size: int) -> None:
    """Reading stops in the middle of such a body; it must go on after it."""
    _, writer = await asyncio.open_connection("127.0.0.1", work_port)
    writer.write(b"POST /posted HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % size)
    await asyncio.wait_for(work.arrived.wait(), 20)
    writer.write(b"x" * size)
    await asyncio.wait_for(work.begun.wait(), 20)
    writer.transport.abort()
    await asyncio.wait_for(work.cleaned.wait(), 20)


async def test_a_stream_ends_with_a_client_that_had_sent_its_next_request(work_port: int, work: Work) -> None:
    await leave(work_port, work, REQUEST % b"stream" * 2)


async def leave(work_port: int, work: Work, sent: bytes) -> None:
    """Leave when the work has begun, and see it end."""
    _, writer = await asyncio.open_connection("127.0.0.1", work_port)
    writer.write(sent)
    await asyncio.wait_for(work.begun.wait(), 20)
    writer.transport.abort()
    await asyncio.wait_for(work.cleaned.wait(), 20)


def channel(*messages: dict[str, Any]) -> Callable[[], Awaitable[dict[str, Any]]]:
    """An ASGI receive channel that gives ``messages`` and then waits."""
    pending = list(messages)

    async def receive() -> dict[str, Any]:
        if not pending:
            await asyncio.Event().wait()
        return pending.pop(0)

    return receive


async def test_work_has_cleaned_up_when_the_client_left() -> None:
    cleaned = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)  # a clean-up that awaits is not cut off
            cleaned.append(True)

    with pytest.raises(ClientDisconnectedError):
        await while_connected({}, channel({"type": "http.request"}, {"type": "http.disconnect"}), work())
    assert cleaned == [True]


async def test_a_cancelled_server_takes_its_work_along() -> None:
    started, cleaned = asyncio.Event(), []

    async def work() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append(True)

    task = asyncio.create_task(while_connected({}, channel(), work()))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cleaned == [True]
    assert len(asyncio.all_tasks()) == 1


class _FaultError(Exception):
    pass


class _Breaks(Response):
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise _FaultError


def application() -> AccessLogMiddleware:
    app, router = FastAPI(), APIRouter(route_class=DirectRoute)

    @router.get("/before")
    async def before(_: Request) -> Response:
        raise _FaultError

    @router.get("/behind")
    async def behind(_: Request) -> Response:
        return _Breaks()

    async def handle(_: Request, __: Exception) -> Response:
        return PlainTextResponse("handled", 418)

    app.router.routes += router.routes
    app.add_exception_handler(_FaultError, handle)
    return AccessLogMiddleware(app, metrics=Metrics(), running=set())


async def sent(path: str) -> list[Any]:
    found: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        found.append(message)

    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "headers": [],
        "query_string": b"",
    }
    try:
        await application()({**scope, "http_version": "1.1", "root_path": "", "scheme": "http"}, receive, send)
    except RuntimeError:  # Starlette's word for it
        found.append({"status": "raised"})
    return [message["status"] for message in found if "status" in message]


@pytest.mark.parametrize(("path", "statuses"), [("/before", [418]), ("/behind", [200, "raised"])])
async def test_an_answer_begins_once(path: str, statuses: list[Any]) -> None:
    assert await sent(path) == statuses
