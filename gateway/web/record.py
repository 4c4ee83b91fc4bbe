"""The record of one request for the access log and the metrics; filled while it is served."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

Room = Callable[[], Awaitable[None]]
"""Waits until a client takes more."""


@dataclass(slots=True)
class RequestRecord:
    """Facts of one request, never its content.

    Attributes:
        request_id: the id in ``x-request-id``.
        started: ``time.perf_counter()`` at arrival.
        model: served model, once it is known to exist.
        ttft_s: seconds from arrival to the engine's first token.
        prompt_tokens: prompt length in ids.
        completion_tokens: generated ids, as usage reports them.
        finish_reason: OpenAI's finish reason.
        error: code or type of the error that the client was given, also inside a stream.
        disconnected: whether the client left before the end.
        annotations: what the request said of itself, such as ``user`` and ``metadata``; nothing of its prompt.
        ending: whether the events that come next are the last of their stream.
        write: writes events (``gateway.web.sse.one_line``) of a stream that has begun; returns what waits for
            room before the next are written, None where there is room. None before, and where the answer is no such
            stream.
    """

    request_id: str = ""
    started: float = field(default_factory=time.perf_counter)
    model: str | None = None
    ttft_s: float | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    finish_reason: str | None = None
    error: str | None = None
    disconnected: bool = False
    annotations: Mapping[str, Any] | None = None
    ending: bool = False
    write: Callable[[bytes], Room | None] | None = None


def record_of(scope: MutableMapping[str, Any]) -> RequestRecord:
    """The record of the request with this ASGI scope, made when it has none."""
    state = scope.setdefault("state", {})
    record = state.get("record")
    if record is None:
        record = state["record"] = RequestRecord()
    return record  # type: ignore[no-any-return]
