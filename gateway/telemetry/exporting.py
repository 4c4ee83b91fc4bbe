"""The export of traces and metrics to OpenTelemetry collectors, by the settings."""

from __future__ import annotations

import importlib.util
import os
from typing import Final

from gateway.settings import ConfigError, TelemetrySettings
from gateway.settings.extras import pip_install
from gateway.telemetry.traces import Telemetry

_PROTOCOL: Final = "http/protobuf"
_PACKAGES: Final = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")


def open_telemetry(settings: TelemetrySettings, version: str) -> Telemetry | None:
    """Begin the export of the settings; None where they export nothing.

    Args:
        settings: settings of telemetry.
        version: version of the gateway.

    Raises:
        ConfigError: the packages are missing, or the variables of OpenTelemetry ask for another protocol.
    """
    if not (settings.traces or settings.metrics) or os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    for signal in ("", "TRACES_", "METRICS_"):
        protocol = os.environ.get(name := f"OTEL_EXPORTER_OTLP_{signal}PROTOCOL") or _PROTOCOL
        if protocol != _PROTOCOL:
            raise ConfigError(f"{name}: must be {_PROTOCOL}, not {protocol!r}.")
    check_telemetry(settings)
    from gateway.telemetry.otel.providers import OpenTelemetry  # noqa: PLC0415 - an extra, and a second of each start

    return OpenTelemetry(settings, version)


def check_telemetry(settings: TelemetrySettings) -> None:
    """Check that the packages for the settings are installed.

    Raises:
        ConfigError: the packages are missing.
    """
    if not (settings.traces or settings.metrics):
        return
    try:
        found = all(map(importlib.util.find_spec, _PACKAGES))
    except ModuleNotFoundError:  # of a package around one
        found = False
    if not found:
        raise ConfigError(f"telemetry: needs OpenTelemetry's SDK; install it by {pip_install('otel')}")
