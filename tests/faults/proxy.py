"""A TCP proxy before a Triton that cuts connections, or swallows what comes."""

from __future__ import annotations

import asyncio
import contextlib


class Proxy:
    """Forwards to a port until it is told otherwise; an asynchronous context manager.

    Args:
        port: of the server behind it.

    Attributes:
        address: of its own, host and port.
    """

    def __init__(self, port: int) -> None:
        self.address = ""
        self._port = port
        self._writers: set[asyncio.StreamWriter] = set()
        self._open = asyncio.Event()
        self._open.set()
        self._rejects = False

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cut()
        self._open.set()
        self._server.close()

    def cut(self) -> None:
        """Reset all connections, and each that comes, until it is healed."""
        self._rejects = True
        for writer in self._writers:
            writer.transport.abort()

    def swallow(self) -> None:
        """Forward nothing until it is healed; connections stay, and new ones are taken."""
        self._open.clear()

    def heal(self) -> None:
        """Forward again."""
        self._rejects = False
        self._open.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            if self._rejects:
                return
            await self._open.wait()
            there, to_it = await asyncio.open_connection("127.0.0.1", self._port)
            self._writers.add(to_it)
            try:
                await asyncio.gather(self._pump(reader, to_it), self._pump(there, writer))
            finally:
                self._writers.discard(to_it)
                to_it.transport.abort()
        except OSError:
            pass
        finally:
            self._writers.discard(writer)
            writer.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                await self._open.wait()
                writer.write(data)
                await writer.drain()
        writer.transport.abort()
