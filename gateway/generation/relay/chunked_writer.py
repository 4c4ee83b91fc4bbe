"""Writes events to a client's socket in the chunked coding of HTTP/1.1 (RFC 9112, section 7.1)."""

from __future__ import annotations

import asyncio
import functools
from typing import Protocol

from gateway.generation.relay.interface import Drain


@functools.lru_cache(maxsize=1024)  # an event of one token has some 200 bytes
def _chunk_head(size: int) -> bytes:
    return b"%x\r\n" % size


class FlowControl(Protocol):
    """The state of a connection's write buffer, as uvicorn keeps it.

    Attributes:
        write_paused: whether the buffer is full.
    """

    write_paused: bool

    async def drain(self) -> None:
        """Wait until the buffer has room."""
        ...


class ChunkedWriter:
    """Writes pieces of a begun response of unknown length, without an ASGI message for each."""

    __slots__ = ("_flow", "_is_closing", "_write")

    def __init__(self, flow: FlowControl, transport: asyncio.Transport) -> None:
        self._flow = flow
        self._is_closing = transport.is_closing
        self._write = transport.write

    def write(self, data: bytes) -> Drain | None:
        """Write a piece; returns a function that waits for room, None where there is room."""
        if self._is_closing():
            return None
        self._write(b"".join((_chunk_head(len(data)), data, b"\r\n")))
        return self._flow.drain if self._flow.write_paused else None
