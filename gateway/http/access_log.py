"""The record of each request: its id in the response, and a JSON line and a count at its end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
from collections.abc import Awaitable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.generation.ids import new_id
from gateway.http.routing import BEGUN, HEADERS, client_path, headers_of
from gateway.settings import Task
from gateway.telemetry.logs import log_facts, work_for
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.traces import RequestTrace, Telemetry, tracing

ACCESS_LOG: Final = logging.getLogger("gateway.access")
_SAFE_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}")
_LONGEST_SESSION = 256
# Asked every few seconds: debug only. A model that is not ready is logged once, by its backend.
_SESSION_HEADERS = frozenset((b"session-id", b"x-session-affinity", b"x-session-id"))  # Codex', OpenCode's, others'
_UNTRACED = contextlib.nullcontext()
_QUIET = frozenset({"/health", "/health/live", "/health/ready", "/metrics"})


@dataclass(slots=True)
class RequestRecord:
    """Facts of one request, never its content, collected while it is served.

    Attributes:
        request_id: the id in ``x-request-id``.
        started: ``time.perf_counter()`` at arrival.
        model: served model, once it is known to exist.
        task: of that model, once its engine was found.
        ttft_s: seconds from arrival to the engine's first token.
        prompt_tokens: prompt length in ids.
        completion_tokens: generated ids, as usage reports them.
        finish_reason: OpenAI's finish reason.
        error: code or type of the error that the client got, also inside a stream.
        disconnected: whether the client left before the end.
        session: id of the conversation, if a header has one.
        endpoint: address of the Triton that served it, where there are several.
        key: name of the key or of the token, never the key.
        annotations: the request's annotations, such as ``user`` and ``metadata``; nothing of its prompt.
    """

    request_id: str = ""
    started: float = field(default_factory=time.perf_counter)
    model: str | None = None
    task: Task | None = None
    ttft_s: float | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    finish_reason: str | None = None
    error: str | None = None
    disconnected: bool = False
    session: str | None = None
    endpoint: str | None = None
    key: str | None = None
    annotations: Mapping[str, Any] | None = None


def record_of(scope: MutableMapping[str, Any]) -> RequestRecord:
    """Return the record of the request with this ASGI scope; the first call makes it from the headers."""
    state = scope.setdefault("state", {})
    record = state.get("record")
    if record is None:
        record = state["record"] = RequestRecord(request_id_of(scope))
        if not _SESSION_HEADERS.isdisjoint(scope[HEADERS]):
            value = next(value for key, value in scope["headers"] if key in _SESSION_HEADERS)
            record.session = value[:_LONGEST_SESSION].decode("latin-1")
    return record  # type: ignore[no-any-return]


def request_id_of(scope: MutableMapping[str, Any]) -> str:
    """Return the id of a request: the client's own where it is safe, else a new one."""
    given = headers_of(scope).get(b"x-request-id")
    return given.decode("ascii") if given is not None and _SAFE_ID.fullmatch(given) else new_id()


class AccessLogMiddleware:
    """Logs and counts each request, from its first layer to its last byte.

    The response carries ``x-request-id``: the client's own where it has 1 to 128 characters of ``A-Za-z0-9._-``, else a
    new one. It is logged and counted just before its last byte leaves.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        metrics: Metrics,
        running: set[asyncio.Future[None]],
        telemetry: Telemetry | None = None,
    ) -> None:
        """Wrap ``app``.

        Args:
            app: the application inside.
            metrics: where requests are counted.
            running: has a future of each request that runs, which is done at its end.
            telemetry: where traces go; None: nowhere.
        """
        self._app = app
        self._metrics = metrics
        self._running = running
        self._telemetry = telemetry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        record = record_of(scope)
        work_for(record.request_id)
        telemetry = None if scope["path"] in _QUIET else self._telemetry
        trace = None if telemetry is None else telemetry.begin(scope)
        status = 500  # what the server returns when the application raises before it responded
        logged = False

        def watched_send(message: Message) -> Awaitable[None]:
            nonlocal status, logged
            if message["type"] == "http.response.start":
                status = message["status"]
                scope[BEGUN] = True
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", record.request_id.encode())]
            elif not message.get("more_body", False) and not logged:
                logged = True  # before the last byte: a client that has the whole response finds it logged and counted
                self._write(scope, record, status, trace)
            return send(message)

        ended = asyncio.get_running_loop().create_future()
        self._running.add(ended)
        try:
            with _UNTRACED if trace is None else tracing(trace):
                await self._app(scope, receive, watched_send)
        finally:
            self._running.discard(ended)
            ended.set_result(None)
            if not logged:
                self._write(scope, record, status, trace)

    def _write(self, scope: Scope, record: RequestRecord, status: int, trace: RequestTrace | None) -> None:
        if record.disconnected and status == 500:
            status = 499  # the client left before anything was sent: nginx's number, not a failure of the gateway
        route = getattr(scope.get("route"), "path", None)
        self._metrics.requests.labels(record.model or "", route or "unmatched", str(status)).inc()
        if trace is not None:
            trace.end(route, status, time.perf_counter() - record.started, record)
        fields = {
            "event": "request",
            "request_id": record.request_id,
            "trace_id": None if trace is None else trace.trace_id,
            "client": scope["client"][0] if scope.get("client") else None,
            "method": scope["method"],
            "path": client_path(scope)[:256],
            "status": status,
            **_facts(record),
            "disconnected": record.disconnected or None,
            "annotations": record.annotations or None,
        }
        level = logging.DEBUG if scope["path"] in _QUIET and status in (200, 503) else logging.INFO
        log_facts(ACCESS_LOG, level, "request", fields)


def log_background(record: RequestRecord, response_id: str, status: str) -> None:
    """Log the outcome of a background response.

    Args:
        record: the response's own record, a copy of the request's.
        response_id: id of the response.
        status: final status of the response.
    """
    fields = {
        "event": "background_response",
        "request_id": record.request_id,
        "response_id": response_id,
        "status": status,
        **_facts(record),
    }
    log_facts(ACCESS_LOG, logging.INFO, "background response", fields)


def _facts(record: RequestRecord) -> dict[str, Any]:
    return {
        "duration_s": round(time.perf_counter() - record.started, 6),
        "key": record.key,
        "model": record.model,
        "task": record.task,
        "ttft_s": None if record.ttft_s is None else round(record.ttft_s, 6),
        "prompt_tokens": record.prompt_tokens,
        "completion_tokens": record.completion_tokens,
        "finish_reason": record.finish_reason,
        "error": record.error,
        "endpoint": record.endpoint,
    }
