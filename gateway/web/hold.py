"""Something that is held for as long as a request runs, to its last byte."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from starlette.types import ASGIApp, Receive, Scope, Send


class HoldMiddleware:
    """Runs each request inside a context of its own."""

    def __init__(self, app: ASGIApp, *, hold: Callable[[], AbstractContextManager[None]]) -> None:
        """Wrap ``app``.

        Args:
            app: what is wrapped.
            hold: makes the context of one request.
        """
        self._app = app
        self._hold = hold

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        with self._hold():
            await self._app(scope, receive, send)
