"""Flow control in both directions (RFC 9113, section 5.2)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from gateway.triton.h2 import http2_frames as frames
from gateway.triton.h2.http2_frames import ConnectionFailure, ErrorCode, StreamFailure
from gateway.triton.h2.http2_streams import Http2Stream
from gateway.triton.h2.limits import Limits

_MESSAGE_HEAD = frames.MESSAGE.size
_LARGEST_FRAME = 4 * frames.MAX_FRAME_BYTES  # larger ones would make other requests wait


class OutboundFlow:
    """Sends request bodies as the server grants credit, a frame of each in turn.

    Attributes:
        window: octets that the connection still takes.
        initial: window of a new stream.
        frame_bytes: largest frame that the server takes.
    """

    def __init__(self) -> None:
        self.window = frames.DEFAULT_WINDOW
        self.initial = frames.DEFAULT_WINDOW
        self.frame_bytes = frames.MAX_FRAME_BYTES
        self._ready: dict[Http2Stream, None] = {}  # have something to send and an open window, in turn

    @property
    def pending(self) -> bool:
        """Whether ``pump`` would send a frame."""
        return bool(self._ready) and self.window > 0

    def begin(self, stream: Http2Stream, out: list[bytes]) -> None:
        """Begin to send a stream's body; a body of one frame is appended to ``out`` if no other waits."""
        stream.send_window = self.initial
        size = len(stream.body)
        if not self._ready and 0 < size <= min(self.initial, self.window, self.frame_bytes, _LARGEST_FRAME):
            out.append(frames.head(frames.DATA, frames.END_STREAM, stream.id, size))
            out.append(stream.body)
            stream.sent = size
            stream.send_window -= size
            self.window -= size
        elif stream.send_window > 0:
            self._ready[stream] = None

    def widen(self, stream: Http2Stream, increment: int) -> None:
        """Change a stream's window; a new initial window may make it smaller, and even negative.

        Raises:
            StreamFailure: the window would be larger than allowed.
        """
        stream.send_window += increment
        if stream.send_window > frames.MAX_WINDOW:
            raise StreamFailure(
                ErrorCode.FLOW_CONTROL_ERROR, "INTERNAL", "the server enlarged the stream's window beyond the limit"
            )
        if stream.send_window > 0 and stream.sent < len(stream.body):
            self._ready[stream] = None

    def resize(self, initial: int, running: Iterable[Http2Stream]) -> None:
        """Apply a new initial window, which changes running streams, too.

        Raises:
            StreamFailure: a stream's window would be larger than allowed.
        """
        change, self.initial = initial - self.initial, initial
        if change:
            for stream in running:
                self.widen(stream, change)

    def widen_connection(self, increment: int) -> None:
        """Widen the connection's window.

        Raises:
            ConnectionFailure: the window would be larger than allowed.
        """
        self.window += increment
        if self.window > frames.MAX_WINDOW:
            raise ConnectionFailure(
                ErrorCode.FLOW_CONTROL_ERROR, "the server enlarged the connection's window beyond the limit"
            )

    def pump(self, out: list[bytes], budget: int) -> None:
        """Append frames to ``out``, up to about ``budget`` octets, as the windows permit."""
        limit = min(self.frame_bytes, _LARGEST_FRAME)
        while self._ready and self.window > 0 and budget > 0:
            stream = next(iter(self._ready))
            del self._ready[stream]
            size = len(stream.body)
            length = min(size - stream.sent, stream.send_window, self.window, limit)
            if stream.status is not None or length <= 0:
                continue  # the stream has ended, or a smaller initial window has closed its window
            end = stream.sent + length
            out.append(frames.head(frames.DATA, frames.END_STREAM if end == size else 0, stream.id, length))
            out.append(stream.body[stream.sent : end])
            stream.sent = end
            stream.send_window -= length
            self.window -= length
            budget -= length
            if end < size and stream.send_window > 0:
                self._ready[stream] = None


class InboundFlow:
    """Grants the server credit for data, by WINDOW_UPDATE frames.

    A stream's credit follows its reader. The connection's is given back as data arrives, so that a slow reader stops
    no other, until ``limits.held`` octets wait for their readers. A message that would not fit a stream's window
    gets credit of its own, in turn, out of ``limits.message`` octets for all of these together.

    Args:
        limits: limits of the connection.
        send: queues a frame.

    Attributes:
        window: octets that the server may still send on the connection.
        held: octets of small messages that wait for their readers.
    """

    def __init__(self, limits: Limits, send: Callable[[bytes], None]) -> None:
        self._limits = limits
        self._send = send
        self._small = limits.small
        self._half = (limits.window + 1) // 2
        self.window = frames.DEFAULT_WINDOW
        self.held = 0
        self._withheld = False  # the connection's credit, until some of what is held has been read
        self._reserved = 0
        self._waiting: deque[tuple[Http2Stream, int]] = deque()  # large messages without credit so far

    def open(self) -> None:
        """Widen the connection's window, which no setting does."""
        self._replenish(self._limits.connection_window - self.window)

    def received(self, octets: int) -> None:
        """Count the payload of DATA frames.

        Raises:
            ConnectionFailure: the payload exceeds the credit.
        """
        self.window -= octets
        if self.window < 0:
            raise ConnectionFailure(ErrorCode.FLOW_CONTROL_ERROR, "more data than the connection's window")

    def credit_connection(self) -> None:
        """Return credit for the connection where that is worth a frame and few octets are held."""
        missing = self._limits.connection_window - self.window
        if 2 * missing < self._limits.connection_window:
            return
        self._withheld = self.held > self._limits.held
        if not self._withheld:
            self._replenish(missing)

    def credit_stream(self, stream: Http2Stream) -> None:
        """Return credit for the read octets of a running stream, where that is worth a frame."""
        if stream.drained >= self._half:
            self._send(frames.window_update(stream.id, stream.drained))
            stream.window += stream.drained
            stream.drained = 0
        self.credit_connection()

    def announce(self, stream: Http2Stream) -> None:
        """Grant credit for a large message whose head has come, when its turn has come."""
        octets = stream.length + _MESSAGE_HEAD
        if octets <= self._small:
            return
        if self._waiting or self._is_beyond(octets):
            self._waiting.append((stream, octets))
        else:
            self._grant(stream, octets)

    def drop(self, stream: Http2Stream, count: int) -> None:
        """Remove the ``count`` oldest messages of a stream, so that the server may send more."""
        drained = 0
        for _ in range(count):
            octets = len(stream.messages.popleft()) + _MESSAGE_HEAD
            if octets <= self._small:
                drained += octets
            elif stream.status is None:
                self._drop_large(stream, octets)
        if stream.status is not None:
            return
        self.held -= drained
        stream.drained += drained
        if stream.drained >= self._half or self._withheld:
            self.credit_stream(stream)

    def forget(self, stream: Http2Stream) -> None:
        """Stop counting an ended stream."""
        if stream.messages:
            sizes = [len(message) + _MESSAGE_HEAD for message in stream.messages]
            self.held -= sum([size for size in sizes if size <= self._small])
        if stream.reserved:
            self._release(stream, stream.reserved)
        self.credit_connection()

    def _replenish(self, octets: int) -> None:
        if octets:
            self.window += octets
            self._send(frames.window_update(0, octets))

    def _is_beyond(self, octets: int) -> bool:
        return self._reserved > 0 and self._reserved + octets > self._limits.message

    def _grant(self, stream: Http2Stream, octets: int) -> None:
        self._reserved += octets
        stream.reserved += octets
        stream.window += octets
        self._send(frames.window_update(stream.id, octets))

    def _drop_large(self, stream: Http2Stream, octets: int) -> None:
        if stream.reserved:
            self._release(stream, octets)
            return
        # It came within the stream's own window, before its turn: that window is what it gives back.
        if (stream, octets) in self._waiting:
            self._waiting.remove((stream, octets))
        stream.drained += octets

    def _release(self, stream: Http2Stream, octets: int) -> None:
        """Take back the credit of a large message, and give it to those whose turn has come."""
        stream.reserved -= octets
        self._reserved -= octets
        while self._waiting:
            stream, wanted = self._waiting[0]
            if stream.status is None:
                if self._is_beyond(wanted):
                    break
                self._grant(stream, wanted)
            self._waiting.popleft()
