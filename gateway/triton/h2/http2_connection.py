"""The client's side of one HTTP/2 connection (RFC 9113), without I/O: bytes in, bytes out, and stream states.

The driver passes read bytes to ``receive``, writes the result of ``take_output``, and reads ``streams.woken`` and
``streams.ended`` after each call.
"""

from __future__ import annotations

from collections.abc import Callable

from gateway.triton.h2 import http2_frames as frames
from gateway.triton.h2.flow_control import InboundFlow, OutboundFlow
from gateway.triton.h2.headers import HeaderBlocks, RequestHeaders
from gateway.triton.h2.http2_frames import ConnectionFailure, ErrorCode, Setting, StreamFailure
from gateway.triton.h2.http2_streams import Http2Stream, Http2Streams
from gateway.triton.h2.limits import Limits
from gateway.triton.h2.status import Status, status_of_headers, status_of_reset, status_of_trailers

_HEAD_BYTES = frames.HEADER_BYTES
_LONG_HEAD_BYTES = frames.HEAD_AND_MESSAGE.size
_MESSAGE_HEAD = frames.MESSAGE.size
_KIND = 3  # where the head of a frame says its type
_ON_CONNECTION = {frames.SETTINGS, frames.PING, frames.GOAWAY}
_ON_STREAM = {frames.DATA, frames.HEADERS, frames.RST_STREAM, frames.CONTINUATION}
_SIZES = {frames.PRIORITY: 5, frames.RST_STREAM: 4, frames.PING: 8, frames.WINDOW_UPDATE: 4}
_DEFAULT = Limits()

_Handler = Callable[[int, int, bytes], None]


class Http2Connection:
    """A connection that carries gRPC requests.

    Args:
        headers: encodes headers of requests.
        limits: limits of the connection.

    Attributes:
        streams: its streams.
        inbound: the server's credit.
        outbound: bodies of requests.
        failure: why the connection ended, or None. After it nothing is read or written.
        settled: whether the server's settings have come, so that it speaks HTTP/2.
        out: frames that wait to be written; see ``take_output``.
        reject: called with the reason when the server breaks the protocol, or needs what this client lacks.
    """

    def __init__(self, headers: RequestHeaders, limits: Limits = _DEFAULT) -> None:
        self._limits = limits
        self.streams = Http2Streams()
        self.inbound = InboundFlow(limits, self._send)
        self.outbound = OutboundFlow()
        self.failure: str | None = None
        self.settled = False
        self.out: list[bytes] = []
        self.reject: Callable[[str], None] = lambda _reason: None
        self._request_headers = headers
        self._blocks = HeaderBlocks(limits)
        self._rest = b""  # of what was read: an unfinished frame
        self._idle = 0  # frames since one that brought a request further
        self._unsent_answers = 0
        # What the fast path may take: within a frame, the largest message, and a window without credit of its own.
        self._short = min(frames.MAX_FRAME_BYTES, limits.small, limits.message + _MESSAGE_HEAD)
        self._handlers: dict[int, _Handler] = {
            frames.DATA: self._on_data,
            frames.HEADERS: self._on_headers,
            frames.RST_STREAM: self._on_reset,
            frames.SETTINGS: self._on_settings,
            frames.PUSH_PROMISE: self._on_push,
            frames.PING: self._on_ping,
            frames.GOAWAY: self._on_goaway,
            frames.WINDOW_UPDATE: self._on_window_update,
            frames.CONTINUATION: self._on_continuation,
        }

    @property
    def done(self) -> bool:
        """Whether only waiting output is left to write before the connection is closed."""
        return self.failure is not None or (self.streams.closing and not self.streams.running)

    def start(self) -> None:
        """Send the connection preface, before all else."""
        own = {
            Setting.ENABLE_PUSH: 0,
            Setting.INITIAL_WINDOW_SIZE: self._limits.window,
            Setting.MAX_HEADER_LIST_SIZE: self._limits.header_list,
        }
        self._send(frames.PREFACE + frames.settings(own))
        self.inbound.open()

    def open(self, stream: Http2Stream) -> None:
        """Send a request, now or when the server permits another stream."""
        if self.streams.closing:
            unavailable = Status("UNAVAILABLE", self.failure or "the connection is closing")
            self.streams.end(stream, unavailable, unprocessed=True)
            return
        self._idle = 0
        self.streams.ask(stream)
        self._admit()

    def cancel(self, stream: Http2Stream, status: Status) -> None:
        """End a stream from this side, unless it has ended, and reset it at the server; unread messages are lost."""
        if stream.status is not None:
            return
        if stream.id:
            self._send(frames.rst_stream(stream.id, ErrorCode.CANCEL))
        self._finish(stream, status)
        stream.discard()

    def ping(self) -> None:
        """Send a ping."""
        self._send(frames.frame(frames.PING, 0, 0, b"keepaliv"))

    def close(self) -> None:
        """Send GOAWAY; running streams must have ended."""
        self.streams.closing = True
        self._send(frames.goaway(ErrorCode.NO_ERROR))

    def goodbye(self, last_id: int = frames.MAX_STREAM_ID) -> None:
        """Open no more streams; waiting ones, and those above ``last_id``, were not processed."""
        status = Status("UNAVAILABLE", self.failure or "no more requests on this connection")
        for stream in self.streams.close(last_id):
            self._finish(stream, status, unprocessed=True)

    def lost(self, reason: str) -> None:
        """End all streams because the connection has ended; unsent requests count as unprocessed."""
        if self.failure is not None:
            return
        self.failure = reason
        self.goodbye()
        for stream in list(self.streams.running.values()):
            self._finish(stream, Status("UNAVAILABLE", reason))

    def take_output(self, budget: int) -> list[bytes]:
        """Return the bytes to write now, with about ``budget`` octets of bodies at most; empty for nothing."""
        if self.outbound.pending and self.failure is None:
            self.outbound.pump(self.out, budget)
            self._idle = 0
        out, self.out = self.out, []
        self._unsent_answers = 0
        return out

    def receive(self, data: bytes) -> None:
        """Read bytes of the server, in any pieces; never raises, see ``failure``."""
        if self.failure is not None:
            return
        try:
            self._take_frames(self._rest + data if self._rest else data)
        except ConnectionFailure as failure:
            reason = f"the server broke the protocol: {failure.reason}"
            self._send(frames.goaway(failure.code, failure.reason))
            self.lost(reason)
            self.reject(reason)
            return
        self.inbound.credit_connection()

    def _send(self, frame: bytes) -> None:
        """Queue a frame behind the ones that wait."""
        if self.failure is None:
            self.out.append(frame)

    def _answer(self, frame: bytes) -> None:
        """Send what the server has a right to.

        Raises:
            ConnectionFailure: it asks for answers, and does not read them.
        """
        self._unsent_answers += 1
        if self._unsent_answers > self._limits.unsent_answers:
            raise ConnectionFailure(ErrorCode.ENHANCE_YOUR_CALM, "too many frames that require a response")
        self._send(frame)

    def _admit(self) -> None:
        """Open the streams that may be opened."""
        if self.streams.exhausted and not self.streams.closing:
            self.goodbye()
        while (stream := self.streams.admit()) is not None:
            stream.window = self._limits.window
            block = self._request_headers.encode(stream.path, stream.timeout, stream.traceparent)
            self._send(frames.frame(frames.HEADERS, frames.END_HEADERS, stream.id, block))
            self.outbound.begin(stream, self.out)

    def _finish(self, stream: Http2Stream, status: Status, *, unprocessed: bool = False) -> None:
        """End a stream. What came before may still be read, and no longer counts as held."""
        if stream.status is not None:
            return
        self.streams.end(stream, status, unprocessed=unprocessed)
        self.inbound.forget(stream)
        self._admit()

    def _take_frames(self, data: bytes) -> None:
        """Take all whole frames; the rest stays.

        Raises:
            ConnectionFailure: the connection must end.
        """
        position, size = 0, len(data)
        while size - position >= _HEAD_BYTES:
            if not data[position + _KIND] and not self._blocks.stream_id:  # DATA
                position = self._take_plain(data, position)
                if position == size:  # the usual case
                    break
            behind = self._take_frame(data, position)
            if behind == position:
                break
            position = behind
        self._rest = data[position:] if position else data

    def _take_plain(self, data: bytes, position: int) -> int:
        """Take frames as long as each is DATA with exactly one message; the position of the first that is not."""
        unpack = frames.HEAD_AND_MESSAGE.unpack_from
        running = self.streams.running
        woken = self.streams.woken
        short = self._short
        size = len(data)
        start = position
        heads = 0
        while size - position >= _LONG_HEAD_BYTES:
            high, low, kind, flags, stream_id, compressed, length = unpack(data, position)
            octets = high << 8 | low
            behind = position + _HEAD_BYTES + octets
            if (
                kind
                or flags
                or compressed
                or octets != length + _MESSAGE_HEAD
                or octets > short
                or behind > size
                or (stream := running.get(stream_id)) is None
                or not stream.plain
                or stream.window < octets
            ):
                break
            stream.window -= octets
            stream.messages.append(data[position + _LONG_HEAD_BYTES : behind])
            if stream.waiting:
                stream.waiting = False
                woken.append(stream)
            heads += _HEAD_BYTES
            position = behind
        if heads:
            payload = position - start - heads
            self._idle = 0
            self.inbound.held += payload
            self.inbound.received(payload)
        return position

    def _take_frame(self, data: bytes, position: int) -> int:
        """Take any frame; the position behind it, or the same position when it is not complete."""
        if len(data) - position < _HEAD_BYTES:
            return position
        high, low, kind, flags, stream_id = frames.HEAD.unpack_from(data, position)
        octets = high << 8 | low
        stream_id &= frames.MAX_STREAM_ID
        self._check_frame(kind, flags, stream_id)
        if octets > frames.MAX_FRAME_BYTES:
            raise ConnectionFailure(ErrorCode.FRAME_SIZE_ERROR, f"a frame of {octets} bytes")
        behind = position + _HEAD_BYTES + octets
        if behind > len(data):
            return position
        if octets != _SIZES.get(kind, octets):
            raise ConnectionFailure(ErrorCode.FRAME_SIZE_ERROR, f"a frame of type {kind} with {octets} bytes")
        self._idle += 1
        if self._idle > self._limits.idle_frames:
            raise ConnectionFailure(ErrorCode.ENHANCE_YOUR_CALM, "too many frames without progress of a request")
        try:
            handler = self._handlers.get(kind)
            if handler is not None:  # unknown frames are ignored, and priorities mean nothing to a client
                handler(stream_id, flags, data[position + _HEAD_BYTES : behind])
        except StreamFailure as failure:
            self._fail(stream_id, failure)
        return int(behind)

    def _check_frame(self, kind: int, flags: int, stream_id: int) -> None:
        """Reject a frame that must not arrive now, by its head alone."""
        if not self.settled and (kind != frames.SETTINGS or flags & frames.ACK):
            raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, "the first frame is not SETTINGS")
        unfinished = self._blocks.stream_id
        if (kind == frames.CONTINUATION) != bool(unfinished) or (unfinished and stream_id != unfinished):
            raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, "an interrupted or unexpected header block")
        if kind in _ON_CONNECTION and stream_id:
            raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, f"a frame of type {kind} on a stream")
        if kind in _ON_STREAM and (not stream_id & 1 or stream_id > self.streams.last_id):
            raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, f"a frame of type {kind} on stream {stream_id}")

    def _on_data(self, stream_id: int, flags: int, payload: bytes) -> None:
        self.inbound.received(len(payload))
        stream = self.streams.running.get(stream_id)
        content = frames.without_padding(payload, flags)
        if stream is None:  # it was reset, and the server has not heard of it
            return
        stream.window -= len(payload)
        if stream.window < 0:
            raise StreamFailure(ErrorCode.FLOW_CONTROL_ERROR, "INTERNAL", "more data than the stream's window")
        if not stream.started:
            raise StreamFailure(ErrorCode.PROTOCOL_ERROR, "INTERNAL", "data before the response headers")
        stream.drained += len(payload) - len(content)
        self._take_content(stream, content)
        if flags & frames.END_STREAM:
            self._end(stream, Status("UNKNOWN", "the stream ended without trailers"))
        elif len(payload) > len(content):
            self.inbound.credit_stream(stream)

    def _take_content(self, stream: Http2Stream, content: bytes) -> None:
        if content:
            self._idle = 0
        position = 0
        while position < len(content):
            if stream.length < 0:
                announced = stream.announced(content, position, self._limits.message)
                if announced is None:
                    break
                position = announced
                self.inbound.announce(stream)
            octets = stream.length + _MESSAGE_HEAD
            position = stream.take(content, position)
            if stream.length < 0:
                if octets <= self._limits.small:
                    self.inbound.held += octets
                self.streams.wake(stream)

    def _on_headers(self, stream_id: int, flags: int, payload: bytes) -> None:
        self._have_headers(stream_id, self._blocks.begin(stream_id, payload, flags))

    def _on_continuation(self, stream_id: int, flags: int, payload: bytes) -> None:
        self._have_headers(stream_id, self._blocks.go_on(payload, flags))

    def _have_headers(self, stream_id: int, headers: dict[str, str] | None) -> None:
        stream = self.streams.running.get(stream_id)
        if headers is None or stream is None:
            return
        self._idle = 0
        if self._blocks.end_stream:
            flaw = None if stream.started or "grpc-status" in headers else status_of_headers(headers)
            self._end(stream, flaw or status_of_trailers(headers))
        elif stream.started:
            raise StreamFailure(ErrorCode.PROTOCOL_ERROR, "INTERNAL", "headers in the middle of a response")
        elif not headers.get(":status", "").startswith("1"):
            self._begin(stream, headers)

    def _begin(self, stream: Http2Stream, headers: dict[str, str]) -> None:
        flaw = status_of_headers(headers)
        if flaw is not None:
            raise StreamFailure(ErrorCode.CANCEL, flaw.name, flaw.text)
        stream.started = True
        stream.plain = True
        stream.encoding = headers.get("grpc-encoding", "identity")
        if stream.sent == len(stream.body):
            stream.body, stream.sent = b"", 0  # a body that is sent whole is not sent again

    def _end(self, stream: Http2Stream, ended: Status) -> None:
        """The server closed its side."""
        if ended.name == "OK" and stream.partial:
            ended = Status("INTERNAL", "the stream ended within a message")
        if stream.sent < len(stream.body):  # the server does not want the rest of the body
            self._send(frames.rst_stream(stream.id, ErrorCode.CANCEL))
        self._finish(stream, ended)

    def _fail(self, stream_id: int, failure: StreamFailure) -> None:
        """Give up a stream that the server did wrong. What came before its mistake may still be read."""
        stream = self.streams.running.get(stream_id)
        if stream is None:  # a setting, which concerns every stream
            raise ConnectionFailure(failure.code, failure.reason)
        self._send(frames.rst_stream(stream.id, failure.code))
        self._finish(stream, Status(failure.status, failure.reason))
        if failure.unserved:
            self.reject(f"the server sends {failure.reason}")

    def _on_reset(self, stream_id: int, _flags: int, payload: bytes) -> None:
        stream = self.streams.running.get(stream_id)
        if stream is None:
            return
        code = frames.u32(payload)
        unprocessed = code == ErrorCode.REFUSED_STREAM
        self._finish(stream, status_of_reset(code), unprocessed=unprocessed)

    def _on_settings(self, _stream_id: int, flags: int, payload: bytes) -> None:
        if flags & frames.ACK:
            if payload:
                raise ConnectionFailure(ErrorCode.FRAME_SIZE_ERROR, "acknowledged settings with content")
            return
        initial = self.outbound.initial
        for setting, value in frames.parse_settings(payload):
            if setting is Setting.MAX_CONCURRENT_STREAMS:
                self.streams.most = value
            elif setting is Setting.MAX_FRAME_SIZE:
                self.outbound.frame_bytes = value
            elif setting is Setting.HEADER_TABLE_SIZE:
                self._request_headers.resize_table(value)
            elif setting is Setting.INITIAL_WINDOW_SIZE:
                initial = value
        self.outbound.resize(initial, self.streams.running.values())
        self.settled = True
        self._answer(frames.frame(frames.SETTINGS, frames.ACK, 0))
        self._admit()

    def _on_push(self, _stream_id: int, _flags: int, _payload: bytes) -> None:
        raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, "a push, although pushes are disabled")

    def _on_ping(self, _stream_id: int, flags: int, payload: bytes) -> None:
        if not flags & frames.ACK:  # an ACK needs no work: any bytes that arrive are a sign of life
            self._answer(frames.frame(frames.PING, frames.ACK, 0, payload))

    def _on_goaway(self, _stream_id: int, _flags: int, payload: bytes) -> None:
        if len(payload) < 8:
            raise ConnectionFailure(ErrorCode.FRAME_SIZE_ERROR, "a GOAWAY frame without content")
        self.goodbye(frames.u31(payload))

    def _on_window_update(self, stream_id: int, _flags: int, payload: bytes) -> None:
        increment = frames.u31(payload)
        if not stream_id:
            if not increment:
                raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, "a WINDOW_UPDATE frame with an increment of 0")
            self.outbound.widen_connection(increment)
            return
        if not stream_id & 1 or stream_id > self.streams.last_id:
            raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, f"a window of stream {stream_id}")
        stream = self.streams.running.get(stream_id)
        if stream is None:
            return
        if not increment:
            raise StreamFailure(ErrorCode.PROTOCOL_ERROR, "INTERNAL", "a WINDOW_UPDATE frame with an increment of 0")
        self.outbound.widen(stream, increment)
