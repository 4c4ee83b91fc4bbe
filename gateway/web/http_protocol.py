"""What uvicorn's HTTP protocol does not do by itself."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any, cast

from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from gateway.web.record import Room

_CLOSE = "gateway.close"
_DEPARTURE = "gateway.departure"
_JOIN = "gateway.join"
_WRITE = "gateway.write"

HEAD_LIMIT = 2**16  # bytes of a request line and its headers
_HEAD_ABORT = 2**18  # where a head is refused that has not even ended: parsing one costs the square of its length
_PATIENCE_S = 60.0
_LINGER_S = 1.0
_UPGRADE = re.compile(rb"(?i)\r\nupgrade:")
_HEADS = 1024  # an event of one token has some 200 bytes
_CHUNK_HEADS = [b"%x\r\n" % size for size in range(_HEADS)]
_TOO_LARGE = f"The request line and headers are larger than {HEAD_LIMIT // 1024} KiB, the most that is accepted."


def http_protocol(refuse: Callable[[int, str], bytes], *, patience_s: float = _PATIENCE_S) -> type[HttpToolsProtocol]:
    """Make a protocol for `uvicorn.Config`.

    Args:
        refuse: makes JSON from a status and a sentence; it answers what no application ever sees.
        patience_s: seconds of silence in the middle of a request, or before the first, after which the connection is
            closed.

    Returns:
        uvicorn's protocol with those answers, bounds on a request's head and on the silence in it, and with
        `close_connection` for its applications.
    """

    class HttpProtocol(_BoundedProtocol):
        _refuse = staticmethod(refuse)
        _patience_s = patience_s

    return HttpProtocol


class _BoundedProtocol(HttpToolsProtocol):
    _refuse: Callable[[int, str], bytes]
    _patience_s: float
    _head = 0  # bytes that have come since the request began, at least those of its head
    _received = 0  # bytes of the piece that is being parsed
    _in_head = True
    _whole = False  # the request that came last
    _status, _message = 400, "The request is not valid HTTP/1.1."
    _timer: asyncio.TimerHandle | None = None
    _ends = False  # with the next answer, or after a moment without one

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._joining = _JoiningTransport(transport)
        self._departure = Departure()
        super().connection_made(cast("asyncio.Transport", self._joining))
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)
        self._departure.happen()
        if self.scope is not None:  # with it they would hold each other, until the garbage collector comes
            cast("dict[str, Any]", self.scope["extensions"]).pop(_CLOSE, None)

    def data_received(self, data: bytes) -> None:
        self._stop_waiting()
        if b"pgrade" in data and (self._in_head or self._whole):
            data = _without_upgrade(data)
        self._received = len(data)
        if self._in_head:
            self._head += len(data)
        super().data_received(data)
        if self._in_head and self._head > _HEAD_ABORT:
            self._answer(431, _TOO_LARGE)
        elif not self._whole:
            self._wait()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        extensions = {_CLOSE: self._close_soon, _JOIN: self._joining.join, _DEPARTURE: self._departure}
        cast("dict[str, Any]", self.scope)["extensions"] = extensions
        if not self._in_head:  # a further request of this connection
            self._in_head, self._head = True, self._received
        self._whole = False

    def on_headers_complete(self) -> None:
        self._in_head = False
        if self._head > HEAD_LIMIT:  # seldom; then count exactly, for a body may have come with it
            size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
            if size > HEAD_LIMIT:
                self._status, self._message = 431, _TOO_LARGE
                raise ValueError(_TOO_LARGE)  # which ends the parsing; the parser's owner calls send_400_response
        super().on_headers_complete()
        if self.cycle is not None and self.cycle.scope is self.scope:
            self.cycle.keep_alive = self.cycle.keep_alive and not self._ends
            extensions = cast("dict[str, Any]", self.scope["extensions"])
            extensions[_WRITE] = _Chunks(self.cycle, self._joining.transport).write

    def on_message_complete(self) -> None:
        self._whole = True
        super().on_message_complete()
        # uvicorn stops reading in the middle of a large body, and goes on when the application asks for more. Who reads
        # nothing does not see the connection end.
        if not self.pipeline:
            self.flow.resume_reading()

    def send_400_response(self, msg: str) -> None:
        del msg
        self._answer(self._status, self._message)

    def _answer(self, status: int, message: str) -> None:
        body = self._refuse(status, message)
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: application/json\r\nconnection: close\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()

    def _close_soon(self) -> None:
        self._ends = True
        self.loop.call_later(_LINGER_S, self._close_idle)

    def _close_idle(self) -> None:
        if self._whole and self.cycle is not None and self.cycle.response_complete:
            self.transport.close()

    def _wait(self) -> None:
        if not self.transport.is_closing():
            self._timer = self.loop.call_later(self._patience_s, self._lose_patience)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _lose_patience(self) -> None:
        answering = self.cycle is not None and not self.cycle.response_complete
        if answering and (self._in_head or self.pipeline or self.flow.read_paused):
            self._wait()  # an earlier answer is running, or it is we who do not read
        elif self._head == 0 or (self.cycle is not None and not self._in_head and self.cycle.response_started):
            self.transport.close()
        else:
            self._answer(408, f"The request was not complete after {self._patience_s:g} seconds of silence.")


def _without_upgrade(data: bytes) -> bytes:
    """A request that offers another protocol, as Java's HTTP client offers h2c with each, is served in this one.

    The parser takes such a request for one without a body, so the offer is renamed before the parser sees it.
    """
    head, end, body = data.partition(b"\r\n\r\n")
    return _UPGRADE.sub(b"\r\nx-declined-upgrade:", head) + end + body


class Departure:
    """The end of a client's connection.

    Attributes:
        happened: whether it came.
    """

    def __init__(self) -> None:
        self.happened = False
        self._told: list[Callable[[], None]] = []

    @contextlib.contextmanager
    def told_to(self, leave: Callable[[], None]) -> Iterator[None]:
        """Have ``leave`` called when it comes."""
        self._told.append(leave)
        try:
            yield
        finally:
            self._told.remove(leave)

    def happen(self) -> None:
        """Tell everybody who wants to be told."""
        self.happened = True
        for leave in self._told:
            leave()


class _JoiningTransport:
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
        if self._held:
            self._write(self._held)
            self._held = b""
        self.transport.close()


class _Chunks:
    """Pieces of one response of unknown length, written without a message for each once it has begun."""

    __slots__ = ("_flow", "_is_closing", "_write")

    def __init__(self, cycle: RequestResponseCycle, transport: asyncio.Transport) -> None:
        self._flow = cycle.flow
        self._is_closing = transport.is_closing
        self._write = transport.write

    def write(self, data: bytes) -> Room | None:
        if self._is_closing():
            return None
        size = len(data)
        head = _CHUNK_HEADS[size] if size < _HEADS else b"%x\r\n" % size
        self._write(b"".join((head, data, b"\r\n")))
        return self._flow.drain if self._flow.write_paused else None


def departure_of(scope: Scope) -> Departure | None:
    """The end of the connection that a request came by; None under another server, whose messages tell it."""
    return (scope.get("extensions") or {}).get(_DEPARTURE)


def chunk_writer(scope: Scope) -> Callable[[bytes], Room | None] | None:
    """What writes a piece of an answer past the application's layers and without a message; None under another server.

    Only for an answer that has begun, has no ``content-length`` and does not end with the piece, to a client that knows
    chunks. It returns what waits for room before the next piece, None where there is room.
    """
    return (scope.get("extensions") or {}).get(_WRITE)


def join_next_writes(scope: Scope) -> None:
    """Send the next write on a request's connection together with the one after it, which must follow at once."""
    join = (scope.get("extensions") or {}).get(_JOIN)
    if join is not None:
        join()


def close_connection(scope: Scope) -> None:
    """Close the connection of a request soon after its answer; without effect under another server.

    A client that has the whole answer may send its next request before it sees the connection end, and would lose it:
    what comes within a second is answered, with ``connection: close``.
    """
    close = (scope.get("extensions") or {}).get(_CLOSE)
    if close is not None:
        close()
