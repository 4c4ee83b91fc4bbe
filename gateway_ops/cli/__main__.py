"""``python -m gateway_ops.cli``."""

from __future__ import annotations

from gateway_ops.cli import app

app()
