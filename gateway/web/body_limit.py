"""A bound on request bodies, declared or streamed."""

from __future__ import annotations

from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class _TooLargeError(Exception):
    """A streamed body went over the limit."""


class BodyLimitMiddleware:
    """Refuses bodies over the limit: by Content-Length before reading, else once too many bytes have come."""

    def __init__(self, app: ASGIApp, *, limit: int, refuse: Callable[[str], ASGIApp]) -> None:
        """Guard ``app``.

        Args:
            app: what is guarded.
            limit: largest body in bytes.
            refuse: makes the 413 answer from one sentence.
        """
        self._app = app
        self._limit = limit
        size = f"{limit / 2**20:g} MiB" if limit >= 2**20 else f"{limit} bytes"
        self._answer = refuse(f"The request body is larger than {size}, the most that is accepted.")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        # The server has checked that it is a number; one with more digits than any real body counts as too large.
        if len(declared) > 18 or int(declared) > self._limit:
            await self._answer(scope, receive, send)
            return
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
