"""Limits of callers on requests: those to the API that ask for work are counted from their first byte to their last."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.access.caller import Caller, caller
from gateway.access.limits import LimitedError, Standing
from gateway.access.permit import Permit, grant
from gateway.web.access_log import record_of


class RateLimitMiddleware:
    """Lets a POST of a caller that has a name or limits pass where they allow it, and tells where the caller stands."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        permit: Callable[[Caller], Permit | None],
        refuse: Callable[[LimitedError], ASGIApp],
    ) -> None:
        """Wrap ``app``.

        Args:
            app: the application inside.
            permit: makes the permit of a caller's request; None where none is needed.
            refuse: makes the answer to a request that a limit does not allow.
        """
        self._app = app
        self._permit = permit
        self._refuse = refuse

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve one connection."""
        permit = self._permit(caller()) if scope["type"] == "http" and scope["method"] == "POST" else None
        if permit is None:
            return self._app(scope, receive, send)
        return self._serve(permit, scope, receive, send)

    async def _serve(self, permit: Permit, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await permit.admit()
        except LimitedError as error:
            record_of(scope).error = "rate_limit_exceeded"
            await self._refuse(error)(scope, receive, send)
            return
        grant(permit)
        ended = False

        def end() -> None:
            nonlocal ended
            if not ended:
                ended = True
                permit.release()

        def watched_send(message: Message) -> Awaitable[None]:
            if message["type"] == "http.response.start":
                _add(message, permit.standing)
            elif not message.get("more_body", False):
                end()  # before the last byte: a client that has the whole answer may send its next request
            return send(message)

        try:
            await self._app(scope, receive, watched_send)
        finally:
            end()


def _add(message: Message, standing: Standing) -> None:
    """Add the headers of where a caller stands; a refusal by a limit has its own, which these replace."""
    if message["status"] < 400:
        message["headers"] = [*message["headers"], *standing.raw_headers()]
        return
    headers = MutableHeaders(scope=message)
    for name, value in standing.headers():
        headers[name] = value
