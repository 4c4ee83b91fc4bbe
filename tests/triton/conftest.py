"""Engines over a scripted server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest
from scripted_triton import Script, ScriptedTriton

from gateway.triton.connection import Connection
from gateway.triton.transports import TransportName
from tests.ports import free_port
from tests.triton.calls import connected

Connect = Callable[[Script], Awaitable[tuple[ScriptedTriton, Connection]]]


@pytest.fixture(params=["grpcio", "h2"])
def transport_name(request: pytest.FixtureRequest) -> TransportName:
    """Each transport: they must behave alike."""
    name: TransportName = request.param
    return name


@pytest.fixture
async def connect(transport_name: TransportName) -> AsyncIterator[Connect]:
    """Starts a server that plays a script, and connects to it by each transport."""
    async with AsyncExitStack() as stack:

        async def start(script: Script) -> tuple[ScriptedTriton, Connection]:
            server = await stack.enter_async_context(ScriptedTriton(script))
            transport = await stack.enter_async_context(connected(transport_name, server.url))
            connection = Connection(transport, timeout=10)
            stack.push_async_callback(connection.background.drain, 5)
            return server, connection

        yield start


@pytest.fixture
def unused_port() -> int:
    """A port of 127.0.0.1 that nobody listens on."""
    return free_port()
