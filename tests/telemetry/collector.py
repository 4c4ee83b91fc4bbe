"""A collector of OpenTelemetry's: takes OTLP over HTTP, and keeps what came."""

from __future__ import annotations

import base64
import contextlib
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from google.protobuf import json_format
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.handler_server import HandlerServer


@dataclass
class Span:
    """A span as it was exported."""

    name: str
    id: str
    trace: str
    parent: str
    kind: int
    error: bool
    start: int
    end: int
    attributes: dict[str, Any]
    events: list[str]


@dataclass
class Collector:
    """What came.

    Attributes:
        url: base of its OTLP.
        bodies: all bytes, by path.
        answers: while it is cleared, exports wait for their answers.
    """

    url: str
    bodies: list[tuple[str, bytes]] = field(default_factory=list)
    answers: threading.Event = field(default_factory=threading.Event)

    @property
    def spans(self) -> list[Span]:
        """All spans, in the order of their ends."""
        found = []
        for path, body in list(self.bodies):
            if path == "/v1/traces":
                for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                    found += [_span(span) for scope in resource.scope_spans for span in scope.spans]
        return sorted(found, key=lambda span: span.end)

    def resources(self) -> list[dict[str, Any]]:
        """Attributes of who sent the traces."""
        bodies = [body for path, body in self.bodies if path == "/v1/traces"]
        parsed = [each for body in bodies for each in ExportTraceServiceRequest.FromString(body).resource_spans]
        return [_attributes(each.resource.attributes) for each in parsed]

    def histograms(self) -> dict[str, list[tuple[dict[str, Any], int, float]]]:
        """By metric the attributes, count and sum of each series, as of the last export."""
        found: dict[str, list[tuple[dict[str, Any], int, float]]] = {}
        for path, body in self.bodies:
            if path == "/v1/metrics":
                for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                    for metric in [each for scope in resource.scope_metrics for each in scope.metrics]:
                        points = metric.histogram.data_points
                        found[metric.name] = [(_attributes(p.attributes), p.count, p.sum) for p in points]
        return found


def _span(span: Any) -> Span:
    return Span(
        span.name, span.span_id.hex(), span.trace_id.hex(), span.parent_span_id.hex(), span.kind,
        span.status.code == 2, span.start_time_unix_nano, span.end_time_unix_nano, _attributes(span.attributes),
        [event.name for event in span.events],
    )  # fmt: skip


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    return getattr(value, kind)


_IDS = re.compile(rb'"(traceId|spanId|parentSpanId)"\s*:\s*"([0-9a-f]*)"')


def _of_json(body: bytes) -> bytes:
    """OTLP's JSON has ids in hexadecimal digits, where protobuf's has base64."""

    def recoded(found: re.Match[bytes]) -> bytes:
        return b'"%b":"%b"' % (found[1], base64.b64encode(bytes.fromhex(found[2].decode())))

    message = json_format.Parse(_IDS.sub(recoded, body), ExportTraceServiceRequest(), ignore_unknown_fields=True)
    return message.SerializeToString()


@contextlib.contextmanager
def collecting() -> Iterator[Collector]:
    """A collector on a free port."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            collector.answers.wait(60)
            if self.headers["content-type"] == "application/json":  # Triton's exporter
                body = _of_json(body)
            collector.bodies.append((self.path, body))
            with contextlib.suppress(ConnectionError):
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

    with HandlerServer(Handler) as server:
        collector = Collector(server.url)
        collector.answers.set()
        yield collector
