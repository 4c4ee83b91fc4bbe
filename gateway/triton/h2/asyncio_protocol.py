"""The asyncio side of one connection: passes bytes between socket and core, wakes readers, and sends pings."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import cast

from gateway.triton.h2.headers import RequestHeaders
from gateway.triton.h2.http2_connection import Http2Connection
from gateway.triton.h2.http2_streams import Http2Stream
from gateway.triton.h2.keepalive import KeepAlive
from gateway.triton.h2.limits import Limits, Timing
from gateway.triton.h2.status import Status

_MANY = 12  # frames that wait and are sent within the turn of the loop, not at its end: those of four requests
_WRITE_BYTES = 256 * 2**10
_FAREWELL_S = 1.0
_TURN_BYTES = 2**15  # as many tokens as take some milliseconds


class H2Protocol(asyncio.Protocol):
    """Drives an ``Http2Connection``.

    Args:
        headers: encodes headers of requests.
        limits: limits of the connection.
        timing: times of pings.
        reject: called with the reason when the server breaks the protocol, or needs what this client lacks.

    Attributes:
        ready: done when the server's settings have come, or the connection has ended.
        closed: done when the connection has ended.
        drop: removes the oldest messages of a stream that has as many, without sending credit: for calls that are
            being woken, after which credit is sent.
    """

    def __init__(self, headers: RequestHeaders, limits: Limits, timing: Timing, reject: Callable[[str], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._core = Http2Connection(headers, limits)
        self._core.reject = reject
        self.drop = self._core.inbound.drop
        self._keepalive = KeepAlive(
            timing.keepalive, timing.keepalive_timeout, busy=self._is_busy, ping=self._ping, give_up=self._give_up
        )
        self._unacknowledged_s = timing.keepalive_timeout
        self._transport: asyncio.Transport | None = None
        self._paused = False
        self._flushing = False
        self._untaken = b""
        self.ready: asyncio.Future[None] = self._loop.create_future()
        self.closed: asyncio.Future[None] = self._loop.create_future()

    @property
    def accepting(self) -> bool:
        """Whether requests may be started here."""
        return not self._core.streams.closing

    @property
    def failure(self) -> str | None:
        """The error that ended the connection; None before, and when this side closed it."""
        return self._core.failure

    def start(self, stream: Http2Stream) -> None:
        """Send a request when the server permits it."""
        self._core.open(stream)
        self._keepalive.begin()
        self._settle()
        if len(self._core.out) >= _MANY:  # the first of many requests need not wait for the last one's
            self._flush()

    def cancel(self, stream: Http2Stream, status: Status) -> None:
        """End a request from this side, unless it has ended."""
        self._core.cancel(stream, status)
        self._settle()

    def read(self, stream: Http2Stream) -> bytes:
        """Remove and return the oldest message of a stream that has one."""
        message = stream.messages[0]
        self.drop(stream, 1)
        if self._core.out:
            self._flush_soon()
        return message

    def close(self, status: Status) -> None:
        """End all requests with a status, then the connection."""
        for stream in self._core.streams.all():
            self._core.cancel(stream, status)
        self._core.close()
        self._settle()

    def retire(self) -> None:
        """Accept no more requests; the connection ends with its last request."""
        self._core.goodbye()
        self._settle()

    def abort(self) -> None:
        """Drop the connection immediately."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the preface."""
        self._transport = cast("asyncio.Transport", transport)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # a dead network: what is sent must be acknowledged, as with grpcio
            milliseconds = int(1_000 * self._unacknowledged_s)
            transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
        self._core.start()
        self._flush()

    def data_received(self, data: bytes) -> None:
        """Read received bytes; many of them in parts, one in each iteration of the event loop."""
        if len(data) <= _TURN_BYTES and not self._untaken:
            self._take(data)
        else:
            if not self._untaken:
                self._loop.call_soon(self._take_more)
                cast("asyncio.Transport", self._transport).pause_reading()
            self._untaken += data

    def _take_more(self) -> None:
        data, self._untaken = self._untaken[:_TURN_BYTES], self._untaken[_TURN_BYTES:]
        if self._untaken:
            self._loop.call_soon(self._take_more)
        elif self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
        self._take(data)

    def _take(self, data: bytes) -> None:
        """Wake the requests that something came for, and answer it."""
        core = self._core
        core.receive(data)
        progress = bool(core.streams.woken or core.streams.ended)
        self._keepalive.note_received(progress=progress)
        if progress:
            self._tell()
        if core.out or core.outbound.pending:
            self._flush()
        if core.done:
            self._end()
        elif core.settled and not self.ready.done():
            self.ready.set_result(None)

    def eof_received(self) -> None:
        """Return None, so that asyncio closes the connection after the server has closed its side."""

    def connection_lost(self, error: Exception | None) -> None:
        """End requests in flight, once the bytes before are read."""
        data, self._untaken = self._untaken, b""
        if data:
            self._take(data)
        reason = f"the connection was lost ({error})" if error else "the server closed the connection"
        self._core.lost(reason)
        self._transport = None
        self._settle()
        self._keepalive.stop()
        for future in (self.ready, self.closed):
            if not future.done():
                future.set_result(None)

    def pause_writing(self) -> None:
        """Note that the socket's buffer is full."""
        self._paused = True

    def resume_writing(self) -> None:
        """Note that the socket's buffer has room again."""
        self._paused = False
        self._flush()

    def _settle(self) -> None:
        """Tell the calls what has changed, and send what that brought about."""
        self._tell()
        if self._core.done:
            self._end()
        elif self._core.out or self._core.outbound.pending:
            self._flush_soon()

    def _tell(self) -> None:
        """Tell the calls what has changed."""
        streams = self._core.streams
        while streams.woken or streams.ended:
            woken, streams.woken = streams.woken, []
            ended, streams.ended = streams.ended, []
            for stream in woken:
                if stream.owner is not None:
                    stream.owner.wake()
            for stream in ended:
                stream.owner.settle()

    def _flush_soon(self) -> None:
        """Write once for everything that this turn of the loop still brings."""
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        while self._transport is not None and not self._paused:
            data = self._core.take_output(_WRITE_BYTES)
            if not data:
                return
            self._transport.write(b"".join(data))

    def _end(self) -> None:
        if not self.ready.done():
            self.ready.set_result(None)
        self._flush()
        if self._transport is not None and not self._transport.is_closing():
            self._transport.close()  # once all is written, for which a server that does not read has a moment
            self._loop.call_later(_FAREWELL_S, self.abort)

    def _is_busy(self) -> bool:
        return len(self._core.streams) > 0

    def _ping(self) -> None:
        self._core.ping()
        self._flush_soon()

    def _give_up(self) -> None:
        self._core.lost("the server does not respond to pings")
        self._settle()
        self.abort()
