"""An application under uvicorn with the project's protocol."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import uvicorn
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Scope
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


def reject(status: int, message: str, _: Scope) -> Response:
    """The response to a request that no application sees: its status and message."""
    return JSONResponse([status, message], status)


async def answer_to(port: int, sent: bytes) -> bytes:
    """All that comes until the server closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    try:
        return await asyncio.wait_for(reader.read(), 20)
    finally:
        writer.close()
