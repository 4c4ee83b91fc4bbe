"""The gateway with one more route, which returns what was measured inside it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from gateway import app as gateway_app
from gateway.settings import load_settings


def serve(file: Path, path: str, answer: Callable[[], Awaitable[dict[str, float]]]) -> None:
    """Serve until SIGTERM, as ``gateway serve`` does."""
    create_app = gateway_app.create_app

    def with_route(*arguments: Any, **named: Any) -> FastAPI:
        app = create_app(*arguments, **named)
        app.add_api_route(path, answer)
        return app

    gateway_app.create_app = with_route  # the rest of the server is to be what it is
    gateway_app.serve(load_settings(file, {}))
