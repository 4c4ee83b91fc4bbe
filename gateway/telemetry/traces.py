"""Traces of requests as interfaces, independent of their export.

Without tracing there are no traces, and nothing of OpenTelemetry is imported. No method is called for a token.
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
    """Facts of a request at its end; see ``gateway.http.access_log.RequestRecord``."""

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
        """Add the trace context for Triton to the request, if Triton gets one."""
        ...

    def responded(self, ttft_s: float | None) -> None:
        """Note the first response; ``ttft_s``: seconds from the arrival of the HTTP request to the first token."""
        ...

    def ended(self, usage: Usage | None, finish_reason: str | None, error: str | None, text: str | None) -> None:
        """Note the end of the call.

        Args:
            usage: tokens so far; None where there was no response.
            finish_reason: finish reason of a complete answer.
            error: kind of the failure, ``cancelled`` where the gateway or its client ended the call; None without one.
            text: text of the answer, where content is captured.
        """
        ...


class RequestTrace(Protocol):
    """The trace of one HTTP request.

    Attributes:
        trace_id: 32 hexadecimal digits, where the request is sampled or its client traces it.
        content: whether prompts and answers are captured.
    """

    trace_id: str | None
    content: bool

    def step(self, step: Step) -> AbstractContextManager[None]:
        """Trace a step in a context."""
        ...

    def capture_messages(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """Note the messages for the model, where content is captured: ``role`` and ``content`` of each."""
        ...

    def call(self, request: GenerationRequest | EncoderRequest, model: str, address: str) -> EngineCall | None:
        """Begin to trace an engine call; None where it is not traced.

        Args:
            request: request to the engine.
            model: served model.
            address: address of the Triton; empty where there is only one.
        """
        ...

    def end(self, route: str | None, status: int, duration_s: float, facts: RequestFacts) -> None:
        """End the trace, before the last byte of the response is sent or after the client has left.

        Args:
            route: the route's path, never a raw path; None where no route matches.
            status: HTTP status.
            duration_s: seconds since the arrival.
            facts: facts of the request.
        """
        ...


class Telemetry(Protocol):
    """Exports traces and metrics."""

    def begin(self, scope: Any) -> RequestTrace | None:
        """Begin the trace of a request with this ASGI scope; None where it is not traced."""
        ...

    async def close(self) -> None:
        """Send waiting data, within a few seconds."""
        ...


_TRACE: Final = contextvars.ContextVar["RequestTrace | None"]("trace", default=None)


current_trace: Final[Callable[[], RequestTrace | None]] = _TRACE.get
"""The trace of the request that the running task works for; None where there is none."""


@contextlib.contextmanager
def tracing(trace: RequestTrace) -> Iterator[None]:
    """Set the trace of a request for the running task and all tasks that begin meanwhile."""
    token = _TRACE.set(trace)
    try:
        yield
    finally:
        _TRACE.reset(token)


class TraceIds(logging.Filter):
    """Adds the ``trace_id`` of the request to log records."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the trace id, and pass every record."""
        trace = _TRACE.get()
        if trace is not None and trace.trace_id is not None:
            record.trace_id = trace.trace_id
        return True
