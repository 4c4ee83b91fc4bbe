"""Defines traces of requests as the rest of the gateway sees them, independent of their export.

Where tracing is off, traces do not exist and nothing of OpenTelemetry is imported. Nothing here is called for a token.
"""

from __future__ import annotations

import contextlib
import contextvars
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Literal, Protocol, TypeVar

from gateway.generation.encoder import EncoderRequest
from gateway.generation.request import GenerationRequest
from gateway.generation.token_counts import Usage

Step = Literal["prompt", "queue"]
"""Steps of a request that are spans of their own: template and tokenization, the wait for a place in the engine."""


Asked = TypeVar("Asked", GenerationRequest, EncoderRequest)


class RequestFacts(Protocol):
    """What is known of a request at its end; see ``gateway.http.access_log.RequestRecord``."""

    request_id: str
    key: str | None
    model: str | None
    ttft_s: float | None
    prompt_tokens: int | None
    completion_tokens: int | None
    error: str | None
    disconnected: bool


class EngineCall(Protocol):
    """One request to an engine."""

    def carried(self, request: Asked) -> Asked:
        """The request with the context that goes on to Triton, if any does."""
        ...

    def responded(self, ttft_s: float | None) -> None:
        """The first response came; ``ttft_s``: seconds from the arrival of the HTTP request to the first token."""
        ...

    def ended(self, usage: Usage | None, finish_reason: str | None, error: str | None, text: str | None) -> None:
        """The request has ended.

        Args:
            usage: tokens so far; None where there was no response.
            finish_reason: of a whole answer.
            error: the kind of the failure, ``cancelled`` where the gateway or its client gave up; None: neither.
            text: of the answer, where content is captured.
        """
        ...


class RequestTrace(Protocol):
    """What is noted of one HTTP request.

    Attributes:
        trace_id: 32 hexadecimal digits, where the request is sampled or its client traces it.
        content: whether what is asked and answered is captured.
    """

    trace_id: str | None
    content: bool

    def step(self, step: Step) -> AbstractContextManager[None]:
        """Note the time that a step takes."""
        ...

    def asked(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """Note what the client asks the model, where content is captured: ``role`` and ``content`` of each message."""
        ...

    def call(self, request: GenerationRequest | EncoderRequest, model: str, address: str) -> EngineCall | None:
        """Note a request to an engine, which begins; None where nothing more of it is wanted.

        Args:
            request: that is sent.
            model: served model.
            address: of Triton, empty where there is only one.
        """
        ...

    def end(self, route: str | None, status: int, duration_s: float, facts: RequestFacts) -> None:
        """End the trace when the last byte of the response is about to leave, or the client has left.

        Args:
            route: the route's path, never a raw path; None where no route matches.
            status: HTTP status.
            duration_s: since the arrival.
            facts: what is known of it.
        """
        ...


class Telemetry(Protocol):
    """Where traces go."""

    def begin(self, scope: Any) -> RequestTrace | None:
        """Note a request with this ASGI scope, which has arrived; None where nothing is wanted of it."""
        ...

    async def close(self) -> None:
        """Send what waits, within a few seconds."""
        ...


_TRACE: Final = contextvars.ContextVar["RequestTrace | None"]("trace", default=None)


current_trace: Final[Callable[[], RequestTrace | None]] = _TRACE.get
"""The trace of the request that the running task works for; None where there is none."""


@contextlib.contextmanager
def tracing(trace: RequestTrace) -> Iterator[None]:
    """Work for a request: it, and all tasks that begin meanwhile."""
    token = _TRACE.set(trace)
    try:
        yield
    finally:
        _TRACE.reset(token)


class TraceIds(logging.Filter):
    """Gives log records the ``trace_id`` of the request that they are written for."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Let each record pass."""
        trace = _TRACE.get()
        if trace is not None and trace.trace_id is not None:
            record.trace_id = trace.trace_id
        return True
