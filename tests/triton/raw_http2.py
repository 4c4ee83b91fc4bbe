"""An HTTP/2 server of the test process that says whatever bytes a test wants, on the right connection and stream."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import hpack
from scripted_triton import tokens
from tritonclient.grpc import service_pb2

from gateway.triton.h2 import H2Transport
from gateway.triton.h2.limits import Timing

DATA, HEADERS, RST, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION = 0, 1, 3, 4, 5, 6, 7, 8, 9
END_STREAM, END_HEADERS, PADDED = 1, 4, 8
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

Attack = Callable[["Peer", int], Awaitable[None]]


def frame(kind: int, flags: int, stream: int, payload: bytes = b"", length: int | None = None) -> bytes:
    """A frame, with a length that may lie."""
    size = len(payload) if length is None else length
    return struct.pack(">I", size)[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def message(content: bytes, flag: int = 0, length: int | None = None) -> bytes:
    """A gRPC message, with a length that may lie."""
    return bytes([flag]) + struct.pack(">I", len(content) if length is None else length) + content


def answer(*ids: int) -> bytes:
    """A response with token ids as a gRPC message."""
    return message(tokens(*ids).SerializeToString())


class Peer:
    """The server's side of one connection.

    Attributes:
        frames: (kind, flags, stream, payload) of every frame received.
        silent: it answers nothing more.
        closed: the connection has ended.
    """

    def __init__(self, server: RawServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._server = server
        self._reader = reader
        self._writer = writer
        self._encoder = hpack.Encoder()
        self._bodies: dict[int, bytes] = {}
        self.frames: list[tuple[int, int, int, bytes]] = []
        self._waiting: list[int] = []  # streams of "bystander"
        self.silent = False
        self.closed = False

    async def serve(self) -> None:
        assert await self._reader.readexactly(len(PREFACE)) == PREFACE
        self.send(self._server.greeting)
        self.silent = not self._server.greeting
        while True:
            head = await self._reader.readexactly(9)
            kind, flags = head[3], head[4]
            stream = struct.unpack(">I", head[5:])[0]
            payload = await self._reader.readexactly(int.from_bytes(head[:3], "big"))
            self.frames.append((kind, flags, stream, payload))
            await self._server.note()
            if self.silent:
                continue
            if kind == SETTINGS and not flags:
                self.send(frame(SETTINGS, 1, 0))
            elif kind == PING and not flags:
                self.send(frame(PING, 1, 0, payload))
            elif kind == DATA:
                self._bodies[stream] = self._bodies.get(stream, b"") + payload
                if flags & END_STREAM:
                    await self._answer(stream, self._bodies.pop(stream))

    async def _answer(self, stream: int, body: bytes) -> None:
        """``good`` is answered; ``bystander`` half, and to its end after ``bad``, to which the attack is the answer."""
        request = service_pb2.ModelInferRequest.FromString(body[5:])
        if request.model_name == "good":
            self.send(self.headers(stream), frame(DATA, 0, stream, answer(1)), self.trailers(stream))
        elif request.model_name == "bystander":
            self._waiting.append(stream)
            self.send(self.headers(stream), frame(DATA, 0, stream, answer(1)))
        else:
            await self._server.attack(self, stream)
            for waiting in self._waiting:
                self.send(frame(DATA, 0, waiting, answer(2)), self.trailers(waiting))

    def send(self, *data: bytes) -> None:
        if not self._writer.is_closing():
            self._writer.write(b"".join(data))

    async def drain(self) -> None:
        """Wait until the client has taken what was sent.

        Raises:
            ConnectionError: the client has dropped the connection.
        """
        await self._writer.drain()

    def stop_reading(self) -> None:
        """Leave what the client sends in the socket, now and later."""
        self._writer.transport.pause_reading()  # type: ignore[attr-defined]

    def drop(self) -> None:
        """Reset the connection."""
        self._writer.transport.abort()

    def encode(self, *fields: tuple[str, str]) -> bytes:
        return self._encoder.encode(fields)

    def headers(self, stream: int, *fields: tuple[str, str], flags: int = END_HEADERS) -> bytes:
        """Response headers, the usual ones unless ``fields`` are given."""
        usual = ((":status", "200"), ("content-type", "application/grpc"))
        return frame(HEADERS, flags, stream, self.encode(*(fields or usual)))

    def trailers(self, stream: int, status: str = "0", *fields: tuple[str, str]) -> bytes:
        return self.headers(stream, ("grpc-status", status), *fields, flags=END_HEADERS | END_STREAM)


class RawServer:
    """Listens on a free port of 127.0.0.1; an async context manager.

    Attributes:
        attack: what a request for the model ``bad`` is answered with.
        greeting: what the server says first.
        peers: its connections, oldest first.
    """

    def __init__(self, attack: Attack, greeting: bytes = frame(SETTINGS, 0, 0)) -> None:
        self.attack = attack
        self.greeting = greeting
        self.peers: list[Peer] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._changed = asyncio.Condition()

    async def __aenter__(self) -> RawServer:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.url = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_error: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        peer = Peer(self, reader, writer)
        self.peers.append(peer)
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                await peer.serve()
        except asyncio.CancelledError:
            pass  # the stream server would report it
        finally:
            self._tasks.discard(task)
            writer.close()
            peer.closed = True
            await self.note()

    def close(self) -> None:
        """Listen no more, and drop all connections."""
        self._server.close()
        for peer in self.peers:
            peer.drop()

    async def note(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something about the received frames holds."""
        async with self._changed:
            await asyncio.wait_for(self._changed.wait_for(holds), 10)


async def nothing(_peer: Peer, _stream: int) -> None:
    """Leave a request without an answer."""


@contextlib.asynccontextmanager
async def served(
    attack: Attack, greeting: bytes = frame(SETTINGS, 0, 0), timing: Timing | None = None
) -> AsyncIterator[tuple[RawServer, H2Transport]]:
    """A server and h2's transport to it."""
    async with RawServer(attack, greeting) as server:
        transport = H2Transport(server.url, timing=timing or Timing())
        try:
            yield server, transport
        finally:
            await transport.close()
