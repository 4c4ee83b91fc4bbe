"""``Transport`` over h2: a connection to one Triton, which is renewed when it is lost, and its requests."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable

import anyio
from tritonclient.grpc import service_pb2

from gateway.triton.access import PLAIN, TritonAccess
from gateway.triton.h2.asyncio_protocol import H2Protocol
from gateway.triton.h2.headers import RequestHeaders
from gateway.triton.h2.http2_frames import MESSAGE
from gateway.triton.h2.http2_streams import Http2Stream
from gateway.triton.h2.limits import Limits, Timing
from gateway.triton.h2.status import Status
from gateway.triton.transport import LIVENESS, METHOD, Tap, TransportError

_FAREWELL_S = 1.0
_MOST_MOVES = 8
_CANCELLED = Status("CANCELLED", "cancelled by the gateway")
_CLOSED = Status("CANCELLED", "the transport was closed")
_EXPIRED = Status("DEADLINE_EXCEEDED", "the deadline has passed")
_LIMITS = Limits()
_TIMING = Timing()


class H2Transport:
    """``Transport`` over HTTP/2, which connects on first use and when a request finds no connection.

    Args:
        url: ``host:port``, with or without ``grpc://``.
        limits: limits of a connection.
        timing: times of attempts and pings.
        access: access to the Triton.

    Attributes:
        reject: called with the reason when the server breaks the protocol, or needs what this transport lacks.
    """

    name = "h2"

    def __init__(
        self, url: str, limits: Limits = _LIMITS, timing: Timing = _TIMING, access: TritonAccess = PLAIN
    ) -> None:
        self.reject: Callable[[str], None] = lambda _reason: None
        self._authority = url.removeprefix("grpc://")
        host, _, port = self._authority.rpartition(":")
        self._address = host.strip("[]"), int(port)
        self._limits = limits
        self._timing = timing
        self._access = access
        self._protocols: set[H2Protocol] = set()  # the last one, and older ones that finish their requests
        self._current: H2Protocol | None = None
        self._waiting: dict[H2Call, None] = {}
        self._connecting: asyncio.Task[None] | None = None
        self._failures = 0
        self._retry_at = 0.0
        self._reason = ""
        self._closed = False

    def infer(
        self, request: service_pb2.ModelInferRequest, *, timeout: float, traceparent: str | None = None
    ) -> H2Call:
        """Start a request; see ``Transport``."""
        call = H2Call(request.SerializeToString(), timeout, self._submit, traceparent=traceparent)
        self._submit(call)
        return call

    async def prepare(self) -> None:
        """Do nothing, as it connects on first use; see ``Transport``."""

    async def renew(self) -> str | None:
        """Connect again; see ``RenewableTransport``."""
        before = self._current
        if before is None or not before.accepting:
            return None
        try:
            with anyio.fail_after(self._timing.connect):
                self._current = await self._open()
        except TimeoutError:
            return "no HTTP/2 SETTINGS frame arrived in time"
        except OSError as error:
            return error.strerror or str(error)
        before.retire()
        return None

    async def probe(self, seconds: float) -> str | None:
        """Check now whether the server responds.

        After a failure the next request connects again: a connection may be dead without a sign.

        Returns:
            Why this transport cannot reach or use the server, or None.
        """
        self._retry_at = 0.0
        call = H2Call(b"", seconds, self._submit, LIVENESS)
        self._submit(call)
        try:
            while await call.read() is not None:
                pass
        except TransportError as error:
            if self._current is not None:
                self._current.retire()
            return str(error)
        return None if call.encoding == "identity" else f"its responses may be compressed ({call.encoding})"

    async def close(self) -> None:
        """End requests in flight with CANCELLED, and close the connection; see ``Transport``."""
        self._closed = True
        if self._connecting is not None:
            self._connecting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._connecting
        self._fail_waiting(_CLOSED)
        protocols = list(self._protocols)
        for protocol in protocols:
            protocol.close(_CLOSED)
        if protocols:
            _, open_still = await asyncio.wait([protocol.closed for protocol in protocols], timeout=_FAREWELL_S)
            for protocol in protocols:
                if protocol.closed in open_still:
                    protocol.abort()
                    await protocol.closed

    def _submit(self, call: H2Call) -> None:
        current = self._current
        if current is not None and current.accepting:
            call.start(current)
        elif self._closed:
            call.end(_CLOSED)
        elif self._connecting is None and asyncio.get_running_loop().time() < self._retry_at:
            call.end(Status("UNAVAILABLE", self._reason))
        else:
            self._waiting[call] = None
            if self._connecting is None:
                self._connecting = asyncio.create_task(self._connect())

    async def _connect(self) -> None:
        protocol, reason = None, "no HTTP/2 SETTINGS frame arrived in time"
        try:
            with anyio.fail_after(self._timing.connect):
                protocol = await self._open()
        except TimeoutError:
            pass
        except (OSError, UnicodeError, OverflowError) as error:  # the latter two: no host name, no port
            reason = getattr(error, "strerror", None) or str(error)
        finally:
            self._connecting = None  # before calls start, which may have to connect again
        if protocol is None:
            self._has_failed(reason)
            return
        self._failures = 0
        self._current = protocol
        waiting, self._waiting = self._waiting, {}
        for call in waiting:
            if not call.ended:
                call.start(protocol)

    async def _open(self) -> H2Protocol:
        """Connect, and wait for the server's settings.

        Raises:
            OSError: there are none.
        """
        loop, access = asyncio.get_running_loop(), self._access
        tls = access.tls.value.h2 if access.tls is not None else None
        headers = RequestHeaders(self._authority, "https" if tls else "http", access.metadata)
        protocol = H2Protocol(headers, self._limits, self._timing, self.reject)
        name = (access.server_name or self._address[0]) if tls else None
        transport, _ = await loop.create_connection(lambda: protocol, *self._address, ssl=tls, server_hostname=name)
        if tls and transport.get_extra_info("ssl_object").selected_alpn_protocol() != "h2":
            protocol.abort()
            raise ConnectionError("the server did not negotiate HTTP/2 over TLS (ALPN)")
        self._protocols.add(protocol)
        protocol.closed.add_done_callback(lambda _: self._protocols.discard(protocol))
        try:
            await protocol.ready
        except asyncio.CancelledError:
            protocol.abort()
            raise
        if not protocol.accepting:
            protocol.abort()
            raise ConnectionError(protocol.failure or "the server accepts no requests")
        return protocol

    def _has_failed(self, reason: str) -> None:
        timing = self._timing
        pause = min(timing.first_backoff * 1.6**self._failures, timing.last_backoff)
        self._failures = min(self._failures + 1, 30)
        self._retry_at = asyncio.get_running_loop().time() + pause * random.uniform(0.8, 1.2)  # noqa: S311
        self._reason = f"no connection to {self._authority}: {reason}"
        self._fail_waiting(Status("UNAVAILABLE", self._reason))

    def _fail_waiting(self, status: Status) -> None:
        waiting, self._waiting = self._waiting, {}
        for call in waiting:
            call.end(status)


class H2Call:
    """An ``InferCall`` that waits for a connection, and moves to another one while no server has processed it.

    Messages queue up as they arrive; a reader that finds some takes them without waiting, and is woken once for all
    that come in one read of the socket.

    Args:
        request: serialized.
        timeout: seconds for the whole request.
        submit: finds a connection for it, and calls ``start`` or ``end``.
        path: path of the RPC.
        traceparent: see ``Transport.infer``.
    """

    __slots__ = ("_deadline", "_loop", "_moves", "_protocol", "_stream", "_submit", "_timer", "_waiter", "tap")

    def __init__(
        self,
        request: bytes,
        timeout: float,
        submit: Callable[[H2Call], None],
        path: str = METHOD,
        traceparent: str | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.time() + timeout
        self._submit = submit
        self._moves = 0
        self.tap: Tap | None = None
        self._protocol: H2Protocol | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._timer = self._loop.call_later(timeout, self.end, _EXPIRED)
        self._stream = Http2Stream(
            MESSAGE.pack(0, len(request)) + request, owner=self, path=path, traceparent=traceparent
        )

    @property
    def ended(self) -> bool:
        """Whether the call has ended; responses that have arrived may still be unread."""
        return self._stream.status is not None

    @property
    def encoding(self) -> str:
        """The server's compression of messages."""
        return self._stream.encoding

    def start(self, protocol: H2Protocol) -> None:
        """Send the request on a connection."""
        self._protocol = protocol
        self._stream.timeout = self._deadline - self._loop.time()
        protocol.start(self._stream)

    async def read(self) -> bytes | None:
        """Read the next response; see ``InferCall``."""
        while not (stream := self._stream).messages:
            if stream.status is not None:
                if stream.status.name == "OK":
                    return None
                raise TransportError(*stream.status)
            stream.waiting = True
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            except asyncio.CancelledError:
                self.cancel()
                raise
            finally:
                self._waiter = None
        return self._protocol.read(stream)  # type: ignore[union-attr] # a message came over one

    def cancel(self) -> None:
        """Cancel the request on the wire; without effect once it has ended."""
        self.end(_CANCELLED)

    def end(self, status: Status) -> None:
        """End the call from this side, unless it has ended."""
        if self._protocol is not None:
            self._protocol.cancel(self._stream, status)
        elif self._stream.status is None:
            self._stream.status = status
            self.settle()

    def settle(self) -> None:
        """Handle the end of the stream: move unprocessed requests to another connection."""
        stream = self._stream
        if stream.unprocessed and self._moves < _MOST_MOVES:
            self._moves += 1
            self._protocol = None
            self._stream = Http2Stream(stream.body, owner=self, path=stream.path, traceparent=stream.traceparent)
            self._stream.waiting = self._waiter is not None
            self._submit(self)
            return
        self._timer.cancel()
        self.wake()
        stream.owner = None  # without a cycle, the garbage collector has nothing to do

    def wake(self) -> None:
        """Wake the reader, unless the tap takes all messages."""
        if self._waiter is None or self._waiter.done():
            return
        stream, protocol = self._stream, self._protocol
        if self.tap is not None and protocol is not None and stream.messages:
            try:
                taken = self.tap(stream.messages)
            except Exception as error:  # noqa: BLE001 - what fails one request must not end the connection of all
                self.tap = None
                self._waiter.set_exception(error)
                return
            if taken:
                protocol.drop(stream, taken)
            if not stream.messages and stream.status is None:
                stream.waiting = True
                return
        self._waiter.set_result(None)
