"""One inference request over h2."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from gateway.triton.h2.frames import MESSAGE
from gateway.triton.h2.status import Status
from gateway.triton.h2.stream import Stream
from gateway.triton.transport import Tap, TransportError

if TYPE_CHECKING:
    from gateway.triton.h2.protocol import H2Protocol

_MOST_MOVES = 8
_CANCELLED = Status("CANCELLED", "cancelled by the gateway")
_EXPIRED = Status("DEADLINE_EXCEEDED", "the deadline has passed")


class H2Call:
    """An ``InferCall``. It waits for a connection, and moves to another one while no server has worked on it.

    Messages queue up as they arrive; a reader that finds some takes them without waiting, and is woken once for all
    that come in one read of the socket.

    Args:
        request: serialized.
        timeout: seconds for the whole request.
        submit: finds a connection for it, and calls ``start`` or ``end``.
    """

    __slots__ = ("_deadline", "_loop", "_moves", "_protocol", "_stream", "_submit", "_timer", "_waiter", "tap")

    def __init__(self, request: bytes, timeout: float, submit: Callable[[H2Call], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.time() + timeout
        self._submit = submit
        self._moves = 0
        self.tap: Tap | None = None
        self._protocol: H2Protocol | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._timer = self._loop.call_later(timeout, self.end, _EXPIRED)
        self._stream = Stream(MESSAGE.pack(0, len(request)) + request, owner=self)

    @property
    def ended(self) -> bool:
        """Whether nothing more will come, apart from what has come."""
        return self._stream.status is not None

    def start(self, protocol: H2Protocol) -> None:
        """Travel on a connection."""
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
        """End it from this side, unless it has ended."""
        if self._protocol is not None:
            self._protocol.cancel(self._stream, status)
        elif self._stream.status is None:
            self._stream.status = status
            self.settle()

    def settle(self) -> None:
        """Take note that the stream has ended."""
        stream = self._stream
        if stream.unprocessed and self._moves < _MOST_MOVES:
            self._moves += 1
            self._protocol = None
            self._stream = Stream(stream.body, owner=self)
            self._stream.waiting = self._waiter is not None
            self._submit(self)
            return
        self._timer.cancel()
        self.wake()
        stream.owner = None  # who has it: the garbage collector need not part them

    def wake(self) -> None:
        """Let the reader look again, unless the tap takes all that there is."""
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
