"""A client's connection, with services for its requests that ASGI lacks, and work that ends when the client leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from starlette.types import Receive, Scope

from gateway.relay.interface import Write

EXTENSION = "gateway.connection"
"""The key of a request's connection in the extensions of its ASGI scope."""


class ClientConnection:
    """A connection that can join two writes to one, end after an answer, and tell that it was lost.

    uvicorn writes the head of a response by itself, and its body after it. It goes on writing until it is told that the
    connection is lost, which uvloop's transport takes for an error once a write has failed: those bytes are dropped.

    Attributes:
        transport: of the event loop.
        lost: whether the connection has ended.
        on_lost: called when it ends.
        write_chunk: writes a piece of an answer past the application's layers and without a message. Only for an answer
            that has begun, has no ``content-length`` and does not end with the piece, to a client that knows chunks.
        close_soon: closes the connection soon after the answer. A client that has the whole answer may send its next
            request before it sees the connection end, and would lose it: what comes within a second is answered, with
            ``connection: close``.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self.transport = transport
        self.lost = False
        self.on_lost: list[Callable[[], None]] = []
        self.write_chunk: Write | None = None
        self.close_soon: Callable[[], None] = _nothing
        self.is_closing = transport.is_closing
        self._write = transport.write
        self._joins = False
        self._held = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.transport, name)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Give information about the transport, by the shortest way.

        uvicorn asks for a socket of Python's to ask that for both ends' addresses: system calls of each connection.
        Ours is asked for only where a request has no Host, and ASGI lets servers leave it out.
        """
        if name in {"socket", "sockname"}:
            return default
        info = self.transport.get_extra_info(name, default)
        return info[:2] if name == "peername" and info else info  # of IPv6 there are four parts

    def join_next_writes(self) -> None:
        """Send the next write together with the one after it, which must follow at once: a system call less."""
        self._joins = True

    def write(self, data: bytes) -> None:
        """Send bytes, or hold them back for the next write."""
        if self.is_closing():
            self._held = b""
        elif self._joins:
            self._joins, self._held = False, data
        elif self._held:
            data, self._held = self._held + data, b""
            self._write(data)
        else:
            self._write(data)

    def close(self) -> None:
        """Close the connection after all bytes that were written or held back."""
        if self._held:
            self._write(self._held)
            self._held = b""
        self.transport.close()

    def end(self) -> None:
        """Call all of ``on_lost``, and drop the references to the protocol, which holds this."""
        self.lost = True
        self.write_chunk, self.close_soon = None, _nothing
        for tell in self.on_lost:
            tell()


def connection_of(scope: Scope) -> ClientConnection | None:
    """The connection that a request came by; None under another server than ours."""
    return (scope.get("extensions") or {}).get(EXTENSION)


def _nothing() -> None:
    """Do nothing: the connection has ended."""


Result = TypeVar("Result")


class ClientDisconnectedError(Exception):
    """The client closed its connection before the work was done."""


async def while_connected(scope: Scope, receive: Receive, work: Coroutine[Any, Any, Result]) -> Result:
    """Run ``work`` to its end, or until the client disconnects; then it is cancelled and has cleaned up on return.

    Args:
        scope: of the request.
        receive: its ASGI channel, with the request body already read from it.
        work: what to run; it runs in the task that calls, and is not begun where the client has left by then.

    Raises:
        ClientDisconnectedError: when the client left first.
    """
    connection: ClientConnection | None = (scope.get("extensions") or {}).get(EXTENSION)
    if connection is not None and connection.lost:
        work.close()
        raise ClientDisconnectedError
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - a coroutine of asyncio runs in one
    left = ended = False

    def leave() -> None:
        nonlocal left
        if not ended:
            left = True
            task.cancel()

    watcher = None if connection is not None else asyncio.create_task(_watch(receive, leave))
    if connection is not None:
        connection.on_lost.append(leave)
    try:
        return await work
    except asyncio.CancelledError:
        if not left:
            raise
        if hasattr(task, "uncancel") and task.uncancel():  # from Python 3.11 on: someone else cancels it, too
            raise
        raise ClientDisconnectedError from None
    finally:
        ended = True
        if watcher is not None:
            watcher.cancel()
        elif connection is not None:
            connection.on_lost.remove(leave)


async def _watch(receive: Receive, leave: Callable[[], None]) -> None:
    """Call ``leave`` when the channel says that the client is gone: under another server than ours."""
    while (await receive())["type"] != "http.disconnect":
        pass
    leave()
