"""Providers of OpenTelemetry's SDK, which export by OTLP over HTTP in threads of their own.

They are not global, so that libraries that trace by themselves, FastAPI among them, do not trace.
"""

from __future__ import annotations

import asyncio
import os
import threading
import uuid
from typing import Any, Final

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import AlwaysOffExemplarFilter, MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased

from gateway.settings import TelemetrySettings
from gateway.telemetry.otel.spans import Instruments, OtelTrace, Tracing, TracingOptions

_NAME: Final = "triton-openai-gateway"
_FLUSH_S: Final = 3.0


class OpenTelemetry:
    """Exports traces and metrics; see ``gateway.telemetry.traces.Telemetry``.

    Spans that the exporter has not taken are dropped beyond ``OTEL_BSP_MAX_QUEUE_SIZE`` (2048): a collector that hangs
    costs requests nothing.

    Args:
        settings: settings of the export.
        version: version of the gateway.
    """

    def __init__(self, settings: TelemetrySettings, version: str) -> None:
        resource = _resource(settings, version)
        self._options = TracingOptions(settings.traceparent_to_triton, settings.capture_content)
        self._traces = _tracer_provider(settings, resource) if settings.traces else None
        self._metrics = _meter_provider(settings, resource) if settings.metrics else None
        ratio = None if _sampler_is_named() else settings.sample_ratio
        self._tracing = Tracing(self._traces.get_tracer(_NAME, version), ratio) if self._traces else None
        self._instruments = Instruments(self._metrics.get_meter(_NAME, version)) if self._metrics else None

    def begin(self, scope: Any) -> OtelTrace | None:
        """See ``Telemetry``."""
        tracing = self._tracing
        span, trace_id = (None, None) if tracing is None else tracing.begin(scope)
        if trace_id is None and self._instruments is None:
            return None
        tracer = None if tracing is None else tracing.tracer
        return OtelTrace(scope, tracer, span, trace_id, self._instruments, self._options)

    async def close(self) -> None:
        """See ``Telemetry``."""
        # A daemon: the process ends, though a collector does not respond.
        thread = threading.Thread(target=self._close, name="otel-close", daemon=True)
        thread.start()
        await asyncio.to_thread(thread.join, _FLUSH_S)

    def _close(self) -> None:
        if self._traces is not None:
            self._traces.shutdown()
        if self._metrics is not None:
            self._metrics.shutdown()


def _resource(settings: TelemetrySettings, version: str) -> Resource:
    """Make the resource of the signals, with an instance id for each process, because each sums its own metrics."""
    found = Resource.create({SERVICE_VERSION: version, SERVICE_INSTANCE_ID: str(uuid.uuid4())})
    name = settings.service_name
    if name is None and str(found.attributes.get(SERVICE_NAME, "unknown_service")).startswith("unknown_service"):
        name = _NAME
    return found if name is None else found.merge(Resource({SERVICE_NAME: name}))


def _tracer_provider(settings: TelemetrySettings, resource: Resource) -> TracerProvider:
    sampler = None if _sampler_is_named() else ParentBased(ALWAYS_ON)  # None: as the variables say
    provider = TracerProvider(sampler, resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(_endpoint(settings, "traces"))))
    return provider


def _sampler_is_named() -> bool:
    return bool(os.environ.get("OTEL_TRACES_SAMPLER"))


def _meter_provider(settings: TelemetrySettings, resource: Resource) -> MeterProvider:
    reader = PeriodicExportingMetricReader(OTLPMetricExporter(_endpoint(settings, "metrics")))
    # Exemplars would cost as much again as the rest.
    return MeterProvider([reader], resource, exemplar_filter=AlwaysOffExemplarFilter(), shutdown_on_exit=False)


def _endpoint(settings: TelemetrySettings, signal: str) -> str | None:
    """The URL for a signal; None where OpenTelemetry's environment variables set it."""
    if settings.endpoint is None or os.environ.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT"):
        return None
    return f"{settings.endpoint.rstrip('/')}/v1/{signal}"
