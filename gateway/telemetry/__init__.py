"""Metrics, logs and traces of the gateway."""
