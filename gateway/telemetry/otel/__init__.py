"""Traces and metrics by OpenTelemetry's SDK, of the extra ``otel``; imported only where they are switched on."""
