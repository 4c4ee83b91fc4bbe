"""Work and answers that end once: with clients that leave, and with exceptions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from fastapi import APIRouter, FastAPI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from gateway.http.access_log import AccessLogMiddleware
from gateway.http.client_connection import ClientDisconnectedError, connection_of, while_connected
from gateway.http.http_protocol import http_protocol
from gateway.http.routing import DirectRoute
from gateway.http.sse import COMMENT, EventStream
from gateway.telemetry.metrics import Metrics
from tests.web.served import served

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
            assert not getattr(task, "cancelling", int)()  # whoever waits outside has not been cancelled
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
async def port(work: Work) -> AsyncIterator[int]:
    routes = [Route(f"/{name}", getattr(work, name)) for name in ("stream", "whole", "late")]
    app = Starlette(routes=[*routes, Route("/posted", work.posted, methods=["POST"])])
    protocol = http_protocol(lambda status, message, _: Response(message, status))
    async with served(app, protocol) as port:
        yield port


@pytest.mark.parametrize("name", [b"stream", b"whole", b"late"])
async def test_work_ends_with_its_client(port: int, work: Work, name: bytes) -> None:
    await leave(port, work, REQUEST % name)
    assert not work.wrongly_begun


@pytest.mark.parametrize("size", [100_000, 3_000_000])
async def test_work_for_a_large_body_ends_with_its_client(port: int, work: Work, size: int) -> None:
    """Reading stops in the middle of such a body; it must go on after it."""
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST /posted HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % size)
    await asyncio.wait_for(work.arrived.wait(), 20)
    writer.write(b"x" * size)
    await asyncio.wait_for(work.begun.wait(), 20)
    writer.transport.abort()
    await asyncio.wait_for(work.cleaned.wait(), 20)


async def test_a_stream_ends_with_a_client_that_had_sent_its_next_request(port: int, work: Work) -> None:
    await leave(port, work, REQUEST % b"stream" * 2)


async def leave(port: int, work: Work, sent: bytes) -> None:
    """Leave when the work has begun, and see it end."""
    _, writer = await asyncio.open_connection("127.0.0.1", port)
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
