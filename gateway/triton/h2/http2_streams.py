"""Streams (RFC 9113, section 5): one for each request, and the set of a connection's streams."""

from __future__ import annotations

from collections import deque
from typing import Any

from gateway.triton.h2.http2_frames import MAX_STREAM_ID, MESSAGE, ErrorCode, StreamFailure
from gateway.triton.h2.status import Status
from gateway.triton.transport import METHOD

_HEAD = MESSAGE.size


class Http2Stream:
    """The state of a stream, which the connection writes; messages are read through the connection.

    Args:
        body: the request as a gRPC message with its head.
        timeout: seconds for the server, or None.
        owner: its request, until it has ended.
        path: path of the RPC.
        traceparent: see ``Transport.infer``.

    Attributes:
        id: 0 until it is opened.
        sent: octets of the body that went out.
        send_window: octets that the server still takes.
        window: octets that the server may still send.
        drained: octets read and not yet given back to the server.
        reserved: octets of credit for a large message, until it is read.
        messages: complete messages, without their heads, oldest first.
        plain: whether a frame with exactly one message may be appended as it is.
        started: whether response headers have come.
        encoding: the compression of messages, by those headers.
        waiting: whether its reader waits.
        status: status at the end; None before. Messages may still be there.
        unprocessed: whether the server has not processed it, or it was never sent.
    """

    __slots__ = (
        "_length",
        "_partial",
        "body",
        "drained",
        "encoding",
        "id",
        "messages",
        "owner",
        "path",
        "plain",
        "reserved",
        "send_window",
        "sent",
        "started",
        "status",
        "timeout",
        "traceparent",
        "unprocessed",
        "waiting",
        "window",
    )

    def __init__(
        self,
        body: bytes,
        timeout: float | None = None,
        owner: Any = None,
        path: str = METHOD,
        traceparent: str | None = None,
    ) -> None:
        self.body = body
        self.timeout = timeout
        self.owner = owner
        self.path = path
        self.traceparent = traceparent
        self.id = 0
        self.sent = 0
        self.send_window = 0
        self.window = 0
        self.drained = 0
        self.reserved = 0
        self.messages: deque[bytes] = deque()
        self.plain = False
        self.started = False
        self.encoding = "identity"
        self.waiting = False
        self.status: Status | None = None
        self.unprocessed = False
        self._partial = bytearray()
        self._length = -1  # of the message whose head has come; -1 before

    @property
    def partial(self) -> int:
        """The octets of an unfinished message with its head."""
        return len(self._partial) + (_HEAD if self._length >= 0 else 0)

    def announced(self, data: bytes, position: int, longest: int) -> int | None:
        """Read the head of the next message at ``position``, or the rest of it.

        Returns:
            The position behind it; None when all of the data went into an unfinished head. The length is ``length``.

        Raises:
            StreamFailure: the message is compressed, or longer than ``longest``.
        """
        if self._partial or len(data) - position < _HEAD:
            taken = min(_HEAD - len(self._partial), len(data) - position)
            self._partial += data[position : position + taken]
            position += taken
            if len(self._partial) < _HEAD:
                self.plain = False
                return None
            flag, length = MESSAGE.unpack(self._partial)
            self._partial = bytearray()
        else:
            flag, length = MESSAGE.unpack_from(data, position)
            position += _HEAD
        if flag == 1:
            reason = "a compressed message, although compression was not offered"
            raise StreamFailure(ErrorCode.CANCEL, "INTERNAL", reason, unserved=True)
        if flag:
            raise StreamFailure(ErrorCode.CANCEL, "INTERNAL", "a message with an unknown flag")
        if length > longest:
            raise StreamFailure(
                ErrorCode.CANCEL, "RESOURCE_EXHAUSTED", f"a message of {length} bytes, more than {longest}"
            )
        self._length = length
        return position

    @property
    def length(self) -> int:
        """The length of the message whose head has come; -1 between messages."""
        return self._length

    def take(self, data: bytes, position: int) -> int:
        """Read available octets of the announced message; returns the position behind them."""
        missing = self._length - len(self._partial)
        behind = min(position + missing, len(data))
        if behind - position < missing:
            self._partial += data[position:behind]
            self.plain = False
            return behind
        if self._partial:
            self._partial += data[position:behind]
            self.messages.append(bytes(self._partial))
            self._partial = bytearray()
        else:
            self.messages.append(data[position:behind])
        self._length = -1
        self.plain = self.started
        return behind

    def discard(self) -> None:
        """Drop all unread octets and messages."""
        self.messages.clear()
        self._partial = bytearray()
        self._length = -1
        self.plain = False


class Http2Streams:
    """The running and waiting streams of a connection, and those that changed.

    Attributes:
        running: open streams by id.
        most: streams that the server permits at a time.
        last_id: id of the newest stream.
        woken: streams with news for a waiting reader; the driver of the connection empties it.
        ended: streams that have ended; the driver of the connection empties it.
        closing: whether no new stream may be opened.
    """

    def __init__(self) -> None:
        self.running: dict[int, Http2Stream] = {}
        self.most = 2**32 - 1
        self.last_id = -1
        self.woken: list[Http2Stream] = []
        self.ended: list[Http2Stream] = []
        self.closing = False
        self._queue: dict[Http2Stream, None] = {}  # in order, and quick to leave
        self._full = False

    def __len__(self) -> int:
        return len(self.running) + len(self._queue)

    def all(self) -> list[Http2Stream]:
        """The running and waiting streams."""
        return [*self.running.values(), *self._queue]

    def ask(self, stream: Http2Stream) -> None:
        """Add a waiting stream."""
        self._queue[stream] = None

    @property
    def exhausted(self) -> bool:
        """Whether this connection has no stream id left."""
        return self.last_id + 2 > MAX_STREAM_ID

    def admit(self) -> Http2Stream | None:
        """Return the next stream that may be opened now, with its id, or None.

        The last id must still be free; see ``exhausted``.
        """
        if not self._queue or self.closing or len(self.running) >= self.most or (self._full and self.running):
            return None
        stream = next(iter(self._queue))
        del self._queue[stream]
        self.last_id += 2
        stream.id = self.last_id
        self.running[stream.id] = stream
        return stream

    def end(self, stream: Http2Stream, status: Status, *, unprocessed: bool = False) -> None:
        """End a stream, unless it has ended."""
        if stream.status is not None:
            return
        stream.status = status
        stream.unprocessed = unprocessed and not stream.started
        stream.plain = False
        if stream.id:
            self.running.pop(stream.id, None)
            # Servers may still count an ended stream when the next stream is opened, and reject the next stream, which
            # then waits until another stream has ended.
            self._full = unprocessed
        else:
            self._queue.pop(stream, None)
        self.ended.append(stream)

    def wake(self, stream: Http2Stream) -> None:
        """Wake a stream's reader, if it waits."""
        if stream.waiting:
            stream.waiting = False
            self.woken.append(stream)

    def close(self, last_id: int = MAX_STREAM_ID) -> list[Http2Stream]:
        """Open no more streams; returns those that the server does not process: waiting, or above ``last_id``."""
        self.closing = True
        return [*self._queue, *(stream for key, stream in self.running.items() if key > last_id)]
