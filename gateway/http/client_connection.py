"""A client's connection with services that ASGI lacks, and work that ends when the client leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, TypeVar

from starlette.types import Receive, Scope

from gateway.generation.relay.interface import Write

EXTENSION = "gateway.connection"
"""The key of a request's connection in the extensions of its ASGI scope."""


class ClientConnection:
    """A connection that can end after a response, and that reports its loss.

    uvicorn goes on writing until it hears that the connection is lost, which uvloop's transport takes for an error once
    a write has failed: those bytes are dropped.

    Attributes:
        transport: transport of the event loop.
        lost: whether the connection has ended.
        on_lost: called when it ends.
        write_chunk: writes a piece of a response past the application's layers and without a message. Only for a
            response that has begun, has no ``content-length`` and does not end with the piece, to a client that knows
            chunks.
        close_soon: closes the connection soon after the response. A client that has all of it may send its next
            request before it sees the connection end, and would lose it: what comes within a second gets a response
            with ``connection: close``.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self.transport = transport
        self.lost = False
        self.on_lost: list[Callable[[], None]] = []
        self.write_chunk: Write | None = None
        self.close_soon: Callable[[], None] = _nothing
        self.is_closing = transport.is_closing

    def __getattr__(self, name: str) -> Any:
        return getattr(self.transport, name)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return information about the transport with few system calls.

        uvicorn would make a Python socket for each connection and read both addresses from it, by system calls. The
        gateway's own address is omitted: ASGI allows that, and only a request without a Host header needs it.
        """
        if name in {"socket", "sockname"}:
            return default
        info = self.transport.get_extra_info(name, default)
        return info[:2] if name == "peername" and info else info  # of IPv6 there are four parts

    def write(self, data: bytes) -> None:
        """Send bytes, unless the connection is closing."""
        if not self.is_closing():
            self.transport.write(data)

    def end(self) -> None:
        """Call the functions of ``on_lost``, and drop references to the protocol."""
        self.lost = True
        self.write_chunk, self.close_soon = None, _nothing
        for tell in self.on_lost:
            tell()


def connection_of(scope: Scope) -> ClientConnection | None:
    """Return the connection of a request; None under another server than the gateway's own."""
    return (scope.get("extensions") or {}).get(EXTENSION)


def _nothing() -> None:
    """Do nothing: the connection has ended."""


Result = TypeVar("Result")


class ClientDisconnectedError(Exception):
    """The client closed its connection before the work was done."""


async def while_connected(scope: Scope, receive: Receive, work: Coroutine[Any, Any, Result]) -> Result:
    """Run ``work`` to its end, or cancel it when the client disconnects; it has cleaned up on return.

    Args:
        scope: scope of the request.
        receive: ASGI channel of the request, whose body was read.
        work: the work, which runs in the calling task; it is not begun where the client has left before.

    Raises:
        ClientDisconnectedError: when the client left first.
    """
    try:
        with CancelOnDisconnect(connection_of(scope), receive):
            return await work
    finally:
        work.close()  # which has no effect on one that has ended


class CancelOnDisconnect:
    """A context that cancels its task when the client disconnects, and then raises ``ClientDisconnectedError``.

    Args:
        connection: of the client; None under another server than the gateway's own.
        receive: the ASGI channel of the request, whose body was read from it.

    Raises:
        ClientDisconnectedError: when the client left first, also before the context was entered.
    """

    __slots__ = ("_connection", "_left", "_receive", "_task", "_watcher")

    def __init__(self, connection: ClientConnection | None, receive: Receive) -> None:
        self._connection = connection
        self._receive = receive
        self._task: asyncio.Task[Any] | None = None  # while the context is entered
        self._watcher: asyncio.Task[None] | None = None
        self._left = False

    def __enter__(self) -> None:
        connection = self._connection
        if connection is not None and connection.lost:
            raise ClientDisconnectedError
        self._task = asyncio.current_task()
        if connection is not None:
            connection.on_lost.append(self._leave)
        else:
            self._watcher = asyncio.create_task(self._watch())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        if self._watcher is not None:
            self._watcher.cancel()
        elif self._connection is not None:
            self._connection.on_lost.remove(self._leave)
        if not self._left or not isinstance(error, asyncio.CancelledError):
            return
        uncancel = getattr(task, "uncancel", None)  # from Python 3.11 on: the count of cancellations
        if uncancel is None or not uncancel():
            raise ClientDisconnectedError from None

    def _leave(self) -> None:
        if self._task is not None:
            self._left = True
            self._task.cancel()

    async def _watch(self) -> None:
        """Leave when the channel says that the client is gone, under another server than the gateway's own."""
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._leave()
