"""The gateway with one more route, which returns what was measured inside it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import uvicorn

from gateway.app import create_app
from gateway.config import load_settings


async def serve(file: Path, path: str, answer: Callable[[], Awaitable[dict[str, float]]]) -> None:
    """Serve until SIGTERM."""
    settings = load_settings(file, {})
    app = create_app(settings)
    app.add_api_route(path, answer)
    config = uvicorn.Config(
        app, port=settings.server.port, http="httptools", ws="none", lifespan="off", access_log=False, log_config=None
    )
    async with app.router.lifespan_context(app):
        await uvicorn.Server(config).serve()
