"""Engines over a scripted server."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest
from scripted_triton import Script, ScriptedTriton

from gateway.triton.dialects.connection import Connection
from gateway.triton.transport import GrpcioTransport, open_channel

Connect = Callable[[Script], Awaitable[tuple[ScriptedTriton, Connection]]]


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Starts a server that plays a script, and connects to it."""
    async with AsyncExitStack() as stack:

        async def start(script: Script) -> tuple[ScriptedTriton, Connection]:
            server = await stack.enter_async_context(ScriptedTriton(script))
            channel = await stack.enter_async_context(open_channel(server.url))
            connection = Connection(GrpcioTransport(channel), timeout=10)
            stack.push_async_callback(connection.background.drain, 5)
            return server, connection

        yield start


@pytest.fixture
def unused_port() -> int:
    """A port of 127.0.0.1 that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
