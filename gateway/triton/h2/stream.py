"""One request on a connection: what goes out, the messages that came in, how it ended."""

from __future__ import annotations

from collections import deque
from typing import Any

from gateway.triton.h2.frames import MESSAGE, ErrorCode, StreamFailure
from gateway.triton.h2.status import Status

_HEAD = MESSAGE.size


class Stream:
    """State of a stream. The connection writes it; whoever reads the messages takes them through the connection.

    Args:
        body: the request as a gRPC message with its head.
        timeout: seconds for the server, or None.
        owner: for whoever made it, until it has ended.

    Attributes:
        id: 0 until it is opened.
        sent: octets of the body that went out.
        send_window: octets that the server still takes.
        window: octets that the server may still send.
        drained: octets read and not yet given back to the server.
        reserved: octets of credit for a large message, until it is read.
        messages: complete messages, without their heads, oldest first.
        plain: a frame that holds exactly one message may be appended as it is.
        started: response headers have come.
        waiting: its reader waits for something to happen.
        status: how it ended; None before. Messages may still be there.
        unprocessed: the server says that it did nothing for it, or it was never sent.
    """

    __slots__ = (
        "_length",
        "_partial",
        "body",
        "drained",
        "id",
        "messages",
        "owner",
        "plain",
        "reserved",
        "send_window",
        "sent",
        "started",
        "status",
        "timeout",
        "unprocessed",
        "waiting",
        "window",
    )

    def __init__(self, body: bytes, timeout: float | None = None, owner: Any = None) -> None:
        self.body = body
        self.timeout = timeout
        self.owner = owner
        self.id = 0
        self.sent = 0
        self.send_window = 0
        self.window = 0
        self.drained = 0
        self.reserved = 0
        self.messages: deque[bytes] = deque()
        self.plain = False
        self.started = False
        self.waiting = False
        self.status: Status | None = None
        self.unprocessed = False
        self._partial = bytearray()
        self._length = -1  # of the message whose head has come; -1 before

    @property
    def partial(self) -> int:
        """Octets of an unfinished message, its head included."""
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
            raise StreamFailure(ErrorCode.CANCEL, "INTERNAL", "a compressed message, which was not offered")
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
        """Length of the message whose head has come, -1 between messages."""
        return self._length

    def take(self, data: bytes, position: int) -> int:
        """Take what there is of the announced message; the position behind it."""
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
        """Forget everything that has come and not been read."""
        self.messages.clear()
        self._partial = bytearray()
        self._length = -1
        self.plain = False
