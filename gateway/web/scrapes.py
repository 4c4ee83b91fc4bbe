"""Scrapes of the slim page, answered before routes and middleware: those cost many times what the page does."""

from __future__ import annotations

import logging
from collections.abc import Callable

from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.telemetry.metrics import Metrics
from gateway.telemetry.slim_page import CONTENT_TYPE
from gateway.web.access_log import ACCESS_LOG, request_id_of
from gateway.web.routing import header


class ScrapesMiddleware:
    """Answers the plain ``GET /metrics`` of an endpoint picker, and leaves all else to the application.

    The answer is the route's own, and counted as that. What asks for more of it goes there: a browser, whose foreign
    page may not read it; a log of every request; and a page that has to wait for Triton's.
    """

    def __init__(self, app: ASGIApp, page: Callable[[], bytes | None], metrics: Metrics) -> None:
        """Wrap ``app``.

        Args:
            app: the application inside.
            page: the slim page as it is now; None where it has to wait for something.
            metrics: where requests are counted.
        """
        self._app = app
        self._page = page
        self._answered = metrics.requests.labels("", "/metrics", "200")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        body = self._page() if _is_scrape(scope) else None
        if body is None:
            await self._app(scope, receive, send)
            return
        self._answered.inc()
        headers = [
            (b"content-type", CONTENT_TYPE.encode()),
            (b"content-length", b"%d" % len(body)),
            (b"x-request-id", request_id_of(scope).encode()),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def _is_scrape(scope: Scope) -> bool:
    return (
        scope["type"] == "http"
        and scope["path"] == "/metrics"
        and scope["method"] == "GET"
        and not header(scope, b"origin")
        and not ACCESS_LOG.isEnabledFor(logging.DEBUG)
    )
