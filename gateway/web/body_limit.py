"""A bound on request bodies, declared or streamed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.web.routing import header


class _TooLargeError(Exception):
    """A streamed body went over the limit."""


class BodyLimitMiddleware:
    """Refuses bodies over the limit: by Content-Length before reading, else once too many bytes have come."""

    def __init__(self, app: ASGIApp, *, limit: int, refuse: Callable[[str], ASGIApp]) -> None:
        """Guard ``app``.

        Args:
            app: the application inside.
            limit: largest body in bytes.
            refuse: makes the 413 answer from one sentence.
        """
        self._app = app
        self._limit = limit
        size = f"{limit / 2**20:g} MiB" if limit >= 2**20 else f"{limit} bytes"
        self._answer = refuse(f"The request body is larger than {size}, the most that is accepted.")

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve one connection."""
        if scope["type"] != "http":
            return self._app(scope, receive, send)
        declared = header(scope, b"content-length")
        if not declared:
            return self._watch(scope, receive, send)
        # The server has checked that it is a number, and ends the body there; one with more digits than any real body
        # counts as too large.
        too_large = len(declared) > 18 or int(declared) > self._limit
        return (self._answer if too_large else self._app)(scope, receive, send)

    async def _watch(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request whose body has no declared length."""
        received = 0
        started = False

        async def limited_receive() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._limit:
                raise _TooLargeError
            return message

        async def watched_send(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, limited_receive, watched_send)
        except _TooLargeError:
            if started:
                raise
            await self._answer(scope, receive, send)
