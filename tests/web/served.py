"""An application under uvicorn with the project's protocol."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


@contextlib.asynccontextmanager
async def served(app: ASGIApp, protocol: type[HttpToolsProtocol], **settings: Any) -> AsyncIterator[int]:
    """Serve on a free port, which this gives.

    Args:
        app: what is served.
        protocol: of ``http_protocol``.
        settings: further ones of ``uvicorn.Config``.
    """
    config = uvicorn.Config(app, http=protocol, ws="none", lifespan="off", log_config=None, **settings)
    config.timeout_graceful_shutdown = 1  # else a test that fails with a request in flight would hang
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(config)
        with server.capture_signals():
            running = asyncio.create_task(server._serve([listening]))
            yield listening.getsockname()[1]
            for connection in list(server.server_state.connections):  # else they are waited for
                connection.transport.abort()
            server.should_exit = True
            await running
