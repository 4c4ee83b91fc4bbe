"""Every response carries ``x-request-id``: the client's own when it is safe, else a new one."""

from __future__ import annotations

import re

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.ids import new_id
from gateway.web.record import record_of

_SAFE = re.compile(rb"[A-Za-z0-9._-]{1,128}")


class RequestIdMiddleware:
    """Accepts an ``x-request-id`` of 1 to 128 characters of ``A-Za-z0-9._-``; anything else is replaced."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"")
        request_id = given.decode("ascii") if _SAFE.fullmatch(given) else new_id()
        record = record_of(scope)
        record.request_id = request_id

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["x-request-id"] = request_id
            await send(message)

        await self._app(scope, receive, send_with_id)
