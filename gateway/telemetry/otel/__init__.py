"""Traces and metrics by OpenTelemetry's SDK (the extra ``otel``), imported only where the settings export them."""
