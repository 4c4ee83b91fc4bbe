"""Steps around an answer that all routes share which generate text."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from gateway.openai.generation_fields import GenerationFields
from gateway.openai.parameters import Ignored
from gateway.serving.model import ServedModel
from gateway.telemetry.metrics import Metrics
from gateway.web.disconnect import ClientDisconnectedError, while_connected
from gateway.web.record import RequestRecord
from gateway.web.sse import EventStream

_CLIENT_GONE = 499  # nobody reads it; the access log shows it


def note_checked(asked: GenerationFields, ignored: Ignored, model: ServedModel, metrics: Metrics) -> None:
    """Let the answer say who gives it, also where an alias was asked for, and count what it is given without."""
    asked.model = model.name
    metrics.count_ignored(model.name, ignored.counted)


async def respond(
    request: Request,
    record: RequestRecord,
    headers: Mapping[str, str],
    *,
    events: Callable[[], AsyncGenerator[bytes, None]] | None,
    whole: Callable[[], Coroutine[Any, Any, bytes]],
) -> Response:
    """The response: a stream where there are events, else the whole body, given up when the client leaves.

    Args:
        request: whose body was read.
        record: of the request.
        headers: of the response.
        events: makes the stream; None where none was asked for.
        whole: makes the body.
    """
    if events is not None:
        return EventStream(events(), headers)
    try:
        body = await while_connected(request.scope, request.receive, whole())
    except ClientDisconnectedError:
        record.disconnected = True
        return Response(status_code=_CLIENT_GONE)
    return Response(body, headers=dict(headers), media_type="application/json")
