"""Exceptions of direct routes: answered once, and never behind an answer that has begun."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import APIRouter, FastAPI
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import Message, Receive, Scope, Send

from gateway.http.access_log import AccessLogMiddleware
from gateway.http.routing import DirectRoute
from gateway.telemetry.metrics import Metrics


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
