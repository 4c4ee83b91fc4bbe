"""One JSON line and one count for every answered request."""

from __future__ import annotations

import logging
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.telemetry.metrics import Metrics
from gateway.web.record import RequestRecord, record_of

_log = logging.getLogger("gateway.access")
# Asked every few seconds: debug only. A model that is not ready is logged once, by its backend.
_QUIET = frozenset({"/health", "/health/live", "/health/ready", "/metrics"})


class AccessLogMiddleware:
    """Logs and counts each request just before the last byte of its answer leaves."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        record = record_of(scope)
        status = 500  # what the server answers when the application raises before it answered
        logged = False

        def log() -> None:
            nonlocal logged
            if not logged:
                logged = True
                self._write(scope, record, status)

        async def watched_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            elif not message.get("more_body", False):
                log()  # before the last byte: who has the whole answer finds it logged and counted
            await send(message)

        try:
            await self._app(scope, receive, watched_send)
        finally:
            log()

    def _write(self, scope: Scope, record: RequestRecord, status: int) -> None:
        if record.disconnected and status == 500:
            status = 499  # the client left before anything was sent: nginx's number, and no failure of ours
        endpoint = getattr(scope.get("route"), "path", "unmatched")
        self._metrics.requests.labels(record.model or "", endpoint, str(status)).inc()
        fields = {
            "request_id": record.request_id,
            "client": scope["client"][0] if scope.get("client") else None,
            "method": scope["method"],
            "path": scope["path"][:256],
            "status": status,
            "duration_s": round(time.perf_counter() - record.started, 6),
            "model": record.model,
            "ttft_s": None if record.ttft_s is None else round(record.ttft_s, 6),
            "prompt_tokens": record.prompt_tokens,
            "completion_tokens": record.completion_tokens,
            "finish_reason": record.finish_reason,
            "error": record.error,
            "disconnected": record.disconnected or None,
            "annotations": record.annotations or None,
        }
        level = logging.DEBUG if scope["path"] in _QUIET and status in (200, 503) else logging.INFO
        _log.log(level, "request", extra={key: value for key, value in fields.items() if value is not None})
