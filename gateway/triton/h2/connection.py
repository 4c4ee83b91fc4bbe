"""The client's side of one HTTP/2 connection, without I/O: bytes in, bytes out, and streams that change.

Whoever drives it hands over what was read (``receive``), writes what ``take_output`` gives, and looks at
``streams.woken`` and ``streams.ended`` after each call.
"""

from __future__ import annotations

from gateway.triton.h2 import frames
from gateway.triton.h2.flow import Inbound, Outbound
from gateway.triton.h2.frames import ConnectionFailure, ErrorCode, Setting
from gateway.triton.h2.headers import RequestHeaders
from gateway.triton.h2.limits import Limits
from gateway.triton.h2.peer import read_settings
from gateway.triton.h2.receiver import Receiver
from gateway.triton.h2.status import Status
from gateway.triton.h2.stream import Stream
from gateway.triton.h2.streams import Streams

_MESSAGE_HEAD = frames.MESSAGE.size
_DEFAULT = Limits()


class Connection:
    """A connection that carries ModelStreamInfer requests.

    Args:
        authority: ``host:port`` of the server.
        limits: what it may hold.

    Attributes:
        limits: those.
        streams: its streams.
        inbound: credit of the server.
        outbound: bodies on their way out.
        failure: why it ended, or None. Nothing more is read then.
        settled: the server's settings have come: it does speak HTTP/2.
        out: frames that wait to be written; see ``take_output``.
    """

    def __init__(self, authority: str, limits: Limits = _DEFAULT) -> None:
        self.limits = limits
        self.streams = Streams()
        self.inbound = Inbound(limits)
        self.outbound = Outbound()
        self.failure: str | None = None
        self.settled = False
        self.out: list[bytes] = []
        self._request_headers = RequestHeaders(authority)
        self._receiver = Receiver(self)
        self._unsent_answers = 0
        self._small = limits.small
        self._half = (limits.window + 1) // 2

    @property
    def done(self) -> bool:
        """Whether there is nothing left to do but to write what waits and to close."""
        return self.failure is not None or (self.streams.closing and not self.streams.running)

    def start(self) -> None:
        """Greet the server. The first thing to do."""
        own = {
            Setting.ENABLE_PUSH: 0,
            Setting.INITIAL_WINDOW_SIZE: self.limits.window,
            Setting.MAX_HEADER_LIST_SIZE: self.limits.header_list,
        }
        self.send(frames.PREFACE + frames.settings(own))
        credit = self.limits.connection_window - self.inbound.window
        if credit:
            self.inbound.window += credit
            self.send(frames.window_update(0, credit))

    def open(self, stream: Stream) -> None:
        """Send a request, at once or when the server permits another stream."""
        if self.streams.closing:
            unavailable = Status("UNAVAILABLE", self.failure or "the connection is closing")
            self.streams.end(stream, unavailable, unprocessed=True)
            return
        self._receiver.idle = 0
        self.streams.ask(stream)
        self.admit()

    def cancel(self, stream: Stream, status: Status, code: ErrorCode = ErrorCode.CANCEL) -> None:
        """End a stream from this side, and tell the server. What was not read is gone. Nothing when it has ended."""
        if stream.status is not None:
            return
        if stream.id:
            self.send(frames.rst_stream(stream.id, code))
        self.finish(stream, status)
        stream.discard()

    def finish(self, stream: Stream, status: Status, *, unprocessed: bool = False) -> None:
        """End a stream as the server says. What it sent before may still be read, and no longer counts as held."""
        if stream.status is not None:
            return
        self.streams.end(stream, status, unprocessed=unprocessed)
        sizes = (len(message) + _MESSAGE_HEAD for message in stream.messages)
        self.inbound.held -= sum(size for size in sizes if size <= self._small)
        if stream.reserved:
            self._send_credit(self.inbound.release(stream, stream.reserved))
        self._credit_connection()
        self.admit()

    def goodbye(self, last_id: int = frames.MAX_STREAM_ID) -> None:
        """Open no more streams; those that wait, and those above ``last_id``, have not been processed."""
        status = Status("UNAVAILABLE", self.failure or "no more requests on this connection")
        for stream in self.streams.close(last_id):
            self.finish(stream, status, unprocessed=True)

    def receive(self, data: bytes) -> None:
        """Take what came from the server. Never raises; see ``failure``."""
        if self.failure is not None:
            return
        try:
            self._receiver.feed(data)
        except ConnectionFailure as failure:
            self.send(frames.goaway(failure.code, failure.reason))
            self.lost(f"the server broke the protocol: {failure.reason}")
            return
        self._credit_connection()

    def read(self, stream: Stream) -> bytes:
        """Take the oldest message of a stream, which must have one; the server may send as much again."""
        message = stream.messages[0]
        self.drop(stream, 1)
        return message

    def drop(self, stream: Stream, count: int) -> None:
        """Take the ``count`` oldest messages of a stream, which must have so many, as ``read`` does."""
        drained = 0
        for _ in range(count):
            octets = len(stream.messages.popleft()) + _MESSAGE_HEAD
            if octets <= self._small:
                drained += octets
            elif stream.status is None:
                self._send_credit(self.inbound.read_large(stream, octets))
        if stream.status is not None:
            return
        self.inbound.held -= drained
        stream.drained += drained
        if stream.drained >= self._half or self.inbound.withheld:
            self.give_back(stream)

    def give_back(self, stream: Stream) -> None:
        """Tell the server what was read of a running stream, where that is worth a frame."""
        credit = self.inbound.stream_credit(stream)
        if credit:
            self.send(frames.window_update(stream.id, credit))
        self._credit_connection()

    def ping(self) -> None:
        """Ask for a sign of life."""
        self.send(frames.frame(frames.PING, 0, 0, b"keepaliv"))

    def answer(self, frame: bytes) -> None:
        """Send what the server has a right to.

        Raises:
            ConnectionFailure: it asks for answers, and does not read them.
        """
        self._unsent_answers += 1
        if self._unsent_answers > self.limits.unsent_answers:
            raise ConnectionFailure(ErrorCode.ENHANCE_YOUR_CALM, "too many frames that demand an answer")
        self.send(frame)

    def close(self) -> None:
        """Say goodbye. Running streams must have been ended."""
        self.streams.closing = True
        if self.failure is None:
            self.send(frames.goaway(ErrorCode.NO_ERROR))

    def lost(self, reason: str) -> None:
        """End everything, because the connection has ended. Requests that were never sent count as unprocessed."""
        if self.failure is not None:
            return
        self.failure = reason
        self.goodbye()
        for stream in list(self.streams.running.values()):
            self.finish(stream, Status("UNAVAILABLE", reason))

    def send(self, frame: bytes) -> None:
        """Queue a frame behind the ones that wait."""
        self.out.append(frame)

    def take_output(self, budget: int) -> list[bytes]:
        """What to write now; of request bodies about ``budget`` octets at most. Empty: nothing for now."""
        if self.outbound.pending and self.failure is None:
            self.outbound.pump(self.out, budget)
            self._receiver.idle = 0
        out, self.out = self.out, []
        self._unsent_answers = 0
        return out

    def admit(self) -> None:
        """Open the streams that may be opened."""
        if self.streams.exhausted and not self.streams.closing:
            self.goodbye()
        while (stream := self.streams.admit()) is not None:
            stream.window = self.limits.window
            block = self._request_headers.encode(stream.timeout)
            self.send(frames.frame(frames.HEADERS, frames.END_HEADERS, stream.id, block))
            self.outbound.begin(stream)

    def apply_settings(self, payload: bytes) -> None:
        """Follow the server's settings.

        Raises:
            ConnectionFailure: they are not as the protocol demands.
        """
        initial = self.outbound.initial
        for setting, value in read_settings(payload):
            if setting is Setting.MAX_CONCURRENT_STREAMS:
                self.streams.most = value
            elif setting is Setting.MAX_FRAME_SIZE:
                self.outbound.frame_bytes = value
            elif setting is Setting.HEADER_TABLE_SIZE:
                self._request_headers.resize_table(value)
            elif setting is Setting.INITIAL_WINDOW_SIZE:
                initial = value
        change, self.outbound.initial = initial - self.outbound.initial, initial
        if change:
            for stream in self.streams.running.values():
                self.outbound.widen(stream, change)
        self.settled = True
        self.answer(frames.frame(frames.SETTINGS, frames.ACK, 0))
        self.admit()

    def announce(self, stream: Stream) -> None:
        """Give the server credit for a message that would not fit a stream's window, when its turn has come."""
        octets = stream.length + _MESSAGE_HEAD
        if octets > self._small:
            granted = self.inbound.reserve(stream, octets)
            if granted:
                self.send(frames.window_update(stream.id, granted))

    def _send_credit(self, granted: list[tuple[Stream, int]]) -> None:
        for stream, credit in granted:
            self.send(frames.window_update(stream.id, credit))

    def _credit_connection(self) -> None:
        credit = self.inbound.credit()
        if credit and self.failure is None:
            self.send(frames.window_update(0, credit))
