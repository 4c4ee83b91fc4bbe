"""The trace of one request: spans of the request, its steps and its engine calls; metrics at its end."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

from opentelemetry.context import Context
from opentelemetry.metrics import Meter
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from gateway.generation.encoder import EncoderParams, EncoderRequest
from gateway.generation.engine import EngineError
from gateway.generation.request import GenerationRequest
from gateway.generation.token_counts import Usage
from gateway.telemetry.otel import names
from gateway.telemetry.traces import Asked, EngineCall, RequestFacts, Step

_PROPAGATOR: Final = TraceContextTextMapPropagator()
_MOST_SPANS: Final = 16  # of a kind in one trace; the others of a large `n` go without
_LONGEST_PATH: Final = 256
_MOST_CONTENT: Final = 16384  # characters of a message or an answer, where they are captured
_MOST_MESSAGES: Final = 32


class Instruments:
    """The histograms of requests; each request is recorded once, at its end."""

    def __init__(self, meter: Meter) -> None:
        self._duration = meter.create_histogram(
            names.REQUEST_DURATION, "s", "Duration of a request.",
            explicit_bucket_boundaries_advisory=names.DURATION_BOUNDS,
        )  # fmt: skip
        self._first_token = meter.create_histogram(
            names.TIME_TO_FIRST_TOKEN, "s", "Time from the arrival of a request to its first token.",
            explicit_bucket_boundaries_advisory=names.FIRST_TOKEN_BOUNDS,
        )  # fmt: skip
        self._per_token = meter.create_histogram(
            names.TIME_PER_OUTPUT_TOKEN, "s", "Mean time per output token after the first.",
            explicit_bucket_boundaries_advisory=names.PER_TOKEN_BOUNDS,
        )  # fmt: skip
        self._tokens = meter.create_histogram(
            names.TOKEN_USAGE, "{token}", "Number of tokens of a request.",
            explicit_bucket_boundaries_advisory=names.TOKEN_BOUNDS,
        )  # fmt: skip

    def record(self, operation: str, duration_s: float, facts: RequestFacts, error: str | None) -> None:
        """Record a request at its end.

        Args:
            operation: operation name of the conventions.
            duration_s: seconds since its arrival.
            facts: facts of the request.
            error: kind of the failure; None without one.
        """
        attributes = {names.OPERATION: operation, names.PROVIDER: names.PROVIDER_VALUE}
        if facts.model is not None:
            attributes |= {names.REQUEST_MODEL: facts.model, names.RESPONSE_MODEL: facts.model}
        failed = attributes if error is None else {**attributes, names.ERROR_TYPE: error}
        self._duration.record(duration_s, failed)
        if facts.ttft_s is not None:
            self._first_token.record(facts.ttft_s, attributes)
            further = (facts.completion_tokens or 0) - 1
            if further > 0 and error is None:
                self._per_token.record((duration_s - facts.ttft_s) / further, attributes)
        for kind, count in (("input", facts.prompt_tokens), ("output", facts.completion_tokens)):
            if count is not None:
                self._tokens.record(count, {**attributes, names.TOKEN_TYPE: kind})


@dataclass(frozen=True, slots=True)
class TracingOptions:
    """Options of traces beyond the default.

    Attributes:
        to_triton: whether Triton gets the trace context of sampled requests.
        content: whether spans have prompts and answers.
    """

    to_triton: bool = False
    content: bool = False


class Tracing:
    """Begins the traces of requests.

    Most requests are not sampled, which is decided without the SDK, because it takes as long as dozens of tokens.

    Args:
        tracer: makes spans.
        ratio: the share of requests that are sampled, of those without a context; None: the tracer's sampler decides.
    """

    def __init__(self, tracer: Tracer, ratio: float | None) -> None:
        self.tracer = tracer
        self._ratio = ratio

    def begin(self, scope: Any) -> tuple[Span | None, str | None]:
        """Begin a request's span, if it is sampled; returns the span, and the trace id of the span or of the client."""
        carrier = _context_headers(scope["headers"])
        parent = _PROPAGATOR.extract(carrier, Context()) if carrier else Context()
        if not parent and self._ratio is not None and random.random() >= self._ratio:  # noqa: S311 - no secret
            return None, None
        span = self.tracer.start_span(_name(scope), parent, SpanKind.SERVER, _of_request(scope))
        trace_id = f"{span.get_span_context().trace_id:032x}"
        if span.is_recording():
            return span, trace_id
        return None, trace_id if parent else None


class OtelTrace:
    """The trace of one request; see ``RequestTrace``.

    Args:
        scope: scope of the request.
        tracer: makes spans; None where only metrics are exported.
        span: span of the request, if it is sampled.
        trace_id: see ``RequestTrace``.
        instruments: histograms; None where only traces are exported.
        options: options of tracing.
    """

    def __init__(
        self,
        scope: Any,
        tracer: Tracer | None,
        span: Span | None,
        trace_id: str | None,
        instruments: Instruments | None,
        options: TracingOptions,
    ) -> None:
        self.trace_id = trace_id
        self.content = options.content and span is not None
        self._scope = scope
        self._tracer = tracer
        self._span = span
        self._instruments = instruments
        self._options = options
        self._calls = self._steps = 0
        self._messages: str | None = None

    def step(self, step: Step) -> AbstractContextManager[None]:
        """See ``RequestTrace``."""
        self._steps += 1
        if self._span is None or self._steps > _MOST_SPANS:
            return contextlib.nullcontext()
        return self._step(step)

    @contextlib.contextmanager
    def _step(self, step: Step) -> Iterator[None]:
        span = self._child(names.STEPS[step], SpanKind.INTERNAL, {})
        if span is None:
            yield
            return
        try:
            yield
        except BaseException as error:
            _fail(span, _kind(error))
            raise
        finally:
            span.end()

    def capture_messages(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """See ``RequestTrace``."""
        if self.content:
            said = [
                {"role": each["role"], "parts": [{"type": "text", "content": each["content"][:_MOST_CONTENT]}]}
                for each in messages[-_MOST_MESSAGES:]
            ]
            self._messages = json.dumps(said)

    def call(self, request: GenerationRequest | EncoderRequest, model: str, address: str) -> EngineCall | None:
        """See ``RequestTrace``."""
        if self._span is None or self._calls >= _MOST_SPANS:
            return None
        self._calls += 1
        operation = names.OPERATIONS.get(getattr(self._scope.get("route"), "path", ""), "chat")
        attributes: dict[str, Any] = {
            names.OPERATION: operation,
            names.PROVIDER: names.PROVIDER_VALUE,
            names.REQUEST_MODEL: model,
        }
        host, _, port = address.rpartition(":")
        if port.isdigit():
            attributes |= {names.SERVER_ADDRESS: host, names.SERVER_PORT: int(port)}
        span = self._child(f"{operation} {model}", SpanKind.CLIENT, attributes)
        if span is None:
            return None
        span.set_attributes(_asked(request))
        if self._messages is not None:
            span.set_attribute(names.INPUT_MESSAGES, self._messages)
        return OtelCall(span, model, self._options)

    def end(self, route: str | None, status: int, duration_s: float, facts: RequestFacts) -> None:
        """See ``RequestTrace``."""
        error = facts.error or (str(status) if status >= 400 else None)
        error = "cancelled" if facts.disconnected else error
        operation = names.OPERATIONS.get(route or "")
        if self._instruments is not None and operation is not None:
            self._instruments.record(operation, duration_s, facts, error)
        span = self._span  # kept: a response in the background goes on below it
        if span is None:
            return
        span.set_attributes({names.HTTP_STATUS: status, names.REQUEST_ID: facts.request_id})
        if route is not None:
            span.update_name(f"{_name(self._scope)} {route}")
            span.set_attribute(names.HTTP_ROUTE, route)
        for name, value in ((names.REQUEST_MODEL, facts.model), (names.KEY_NAME, facts.key)):
            if value is not None:
                span.set_attribute(name, value)
        if error is not None:
            span.set_attribute(names.ERROR_TYPE, error)
            # By the HTTP conventions what the client did wrong leaves the status of a server's span unset.
            if status >= 500 or (status < 400 and not facts.disconnected):
                span.set_status(Status(StatusCode.ERROR))
        span.end()

    def _child(self, name: str, kind: SpanKind, attributes: dict[str, Any]) -> Span | None:
        if self._tracer is None or self._span is None:
            return None
        return self._tracer.start_span(name, set_span_in_context(self._span, Context()), kind, attributes)


class OtelCall:
    """The span of one engine call; see ``EngineCall``."""

    def __init__(self, span: Span, model: str, options: TracingOptions) -> None:
        self._span = span
        self._model = model
        self._options = options

    def carried(self, request: Asked) -> Asked:
        """See ``EngineCall``."""
        if not self._options.to_triton:
            return request
        context = self._span.get_span_context()
        # Sampled, and no other flag: servers of the first edition of W3C Trace Context know this one alone.
        return dataclasses.replace(request, traceparent=f"00-{context.trace_id:032x}-{context.span_id:016x}-01")

    def responded(self, ttft_s: float | None) -> None:
        """See ``EngineCall``."""
        self._span.add_event(names.FIRST_TOKEN)
        if ttft_s is not None:
            self._span.set_attribute(names.TIME_TO_FIRST_CHUNK, ttft_s)

    def ended(self, usage: Usage | None, finish_reason: str | None, error: str | None, text: str | None) -> None:
        """See ``EngineCall``."""
        span = self._span
        if usage is not None:
            span.set_attribute(names.RESPONSE_MODEL, self._model)
            span.set_attribute(names.INPUT_TOKENS, usage.prompt_tokens)
            span.set_attribute(names.OUTPUT_TOKENS, usage.completion_tokens)
            if usage.cached_tokens is not None:
                span.set_attribute(names.CACHED_TOKENS, usage.cached_tokens)
        if finish_reason is not None:
            span.set_attribute(names.FINISH_REASONS, (finish_reason,))
        if text is not None and self._options.content:
            parts = [{"type": "text", "content": text[:_MOST_CONTENT]}]
            message = {"role": "assistant", "parts": parts, "finish_reason": finish_reason or ""}
            span.set_attribute(names.OUTPUT_MESSAGES, json.dumps([message]))
        if error is not None:
            _fail(span, error)
        span.end()


def _method(scope: Any) -> str:
    return scope["method"] if scope["method"] in names.METHODS else names.OTHER_METHOD


def _name(scope: Any) -> str:
    """The HTTP method for a span's name; ``HTTP`` for a non-standard one, so that names are bounded."""
    return scope["method"] if scope["method"] in names.METHODS else "HTTP"


def _kind(error: BaseException) -> str:
    if isinstance(error, asyncio.CancelledError):
        return "cancelled"
    return error.kind.value if isinstance(error, EngineError) else type(error).__name__


def _fail(span: Span, error: str) -> None:
    span.set_attribute(names.ERROR_TYPE, error)
    span.set_status(Status(StatusCode.ERROR))


def _of_request(scope: Any) -> dict[str, str | int]:
    host, _, port = _host(scope["headers"]).rpartition(":")
    attributes: dict[str, str | int] = {
        names.HTTP_METHOD: _method(scope),
        names.URL_PATH: scope["path"][:_LONGEST_PATH],
        names.URL_SCHEME: scope.get("scheme", "http"),
        names.SERVER_ADDRESS: host or port,
    }
    if host and port.isdigit():
        attributes[names.SERVER_PORT] = int(port)
    return attributes


def _asked(request: GenerationRequest | EncoderRequest) -> dict[str, Any]:
    """The numeric parameters of a request, without its stop strings, which are the client's text."""
    params = request.params
    if isinstance(params, EncoderParams):
        dimensions = {} if params.dimensions is None else {names.DIMENSIONS: params.dimensions}
        return {names.RESPONSE_ID: request.id, **dimensions}
    assert isinstance(request, GenerationRequest)  # noqa: S101 - its params are
    values = {key: getattr(params, name) for name, key in names.SAMPLING.items()}
    values |= {
        names.MAX_TOKENS: request.max_tokens,
        names.CHOICES: params.n,
        names.STREAM: params.stream,
        names.RESPONSE_ID: request.id,
    }
    return {key: value for key, value in values.items() if value is not None}


def _context_headers(headers: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    """The headers of W3C Trace Context; none where there is not just one ``traceparent``, which is as good as none."""
    parents = [value for name, value in headers if name == b"traceparent"]
    if len(parents) != 1:
        return {}
    states = [value.decode("latin-1") for name, value in headers if name == b"tracestate"]
    return {"traceparent": parents[0].decode("latin-1"), "tracestate": ",".join(states)}


def _host(headers: Sequence[tuple[bytes, bytes]]) -> str:
    return next((value.decode("latin-1") for name, value in headers if name == b"host"), "")[:_LONGEST_PATH]
