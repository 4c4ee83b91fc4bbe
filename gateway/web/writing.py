"""Bytes of an answer on their way into a connection, in as few system calls and layers as they need."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from gateway.web.record import Room

_HEADS = 1024  # an event of one token has some 200 bytes
_CHUNK_HEADS = [b"%x\r\n" % size for size in range(_HEADS)]


class JoiningTransport:
    """A transport that can hold one write back and send it with the next: a system call less.

    uvicorn writes the head of a response by itself, and its body after it. It goes on writing until it is told that the
    connection is lost, which uvloop's transport takes for an error once a write has failed: what nobody can receive
    any more is dropped here.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self.transport = transport
        self._is_closing = transport.is_closing
        self._write = transport.write
        self._joins = False
        self._held = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.transport, name)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """What the transport tells of the client, by the shortest way.

        uvicorn asks for a socket of Python's to ask that for both ends' addresses: system calls of each connection.
        Ours is asked for only where a request has no Host, and ASGI lets servers leave it out.
        """
        if name in {"socket", "sockname"}:
            return default
        info = self.transport.get_extra_info(name, default)
        return info[:2] if name == "peername" and info else info  # of IPv6 there are four parts

    def join(self) -> None:
        """Send the next write with the one after it."""
        self._joins = True

    def write(self, data: bytes) -> None:
        """Send bytes, or hold them back for the next write."""
        if self._is_closing():
            self._held = b""
        elif self._joins:
            self._joins, self._held = False, data
        elif self._held:
            data, self._held = self._held + data, b""
            self._write(data)
        else:
            self._write(data)

    def close(self) -> None:
        """Close the connection after what is written and what is held back."""
        if self._held:
            self._write(self._held)
            self._held = b""
        self.transport.close()


class Chunks:
    """Pieces of one response of unknown length, written without a message for each once it has begun."""

    __slots__ = ("_flow", "_is_closing", "_write")

    def __init__(self, cycle: RequestResponseCycle, transport: asyncio.Transport) -> None:
        self._flow = cycle.flow
        self._is_closing = transport.is_closing
        self._write = transport.write

    def write(self, data: bytes) -> Room | None:
        """Write a piece; returns what waits for room before the next, None where there is room."""
        if self._is_closing():
            return None
        size = len(data)
        head = _CHUNK_HEADS[size] if size < _HEADS else b"%x\r\n" % size
        self._write(b"".join((head, data, b"\r\n")))
        return self._flow.drain if self._flow.write_paused else None
