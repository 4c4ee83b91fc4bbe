"""The events of a background response on their way to the store, for those who follow it here."""

from __future__ import annotations

import asyncio

from gateway.openai.errors import OpenAIError
from gateway.openai.responses.stored import Shelf
from gateway.relay.interface import Drain, Write
from gateway.relay.text_events import one_line

_ENDS = (b"event: response.completed\n", b"event: response.incomplete\n", b"event: response.failed\n")


class LiveLog:
    """Events that are not in the store yet; an event's place in the log is its sequence number.

    The last event of a stream is no part of it: it is made of the response as it was written, which tells its end.

    Attributes:
        size: bytes of all that were added.
        waiting: bytes of those that are not in the store.
    """

    def __init__(self, shelf: Shelf, response_id: str) -> None:
        """Begin with none.

        Args:
            shelf: where the response is kept.
            response_id: of it.
        """
        self.size = 0
        self.waiting = 0
        self._shelf = shelf
        self._id = response_id
        self._first = 0
        self._events: list[bytes] = []
        self._readers: set[_Reader] = set()
        self._flushing = asyncio.Lock()
        self._unsure = False

    def add(self, data: bytes) -> None:
        """Add events, but for the last of the stream.

        Args:
            data: whole events.
        """
        parts = one_line(data).split(b"\n\n")
        events = [event + b"\n\n" for event in parts if event and not event.startswith(_ENDS)]
        if not events:
            return
        self._events += events
        size = sum(map(len, events))
        self.size += size
        self.waiting += size
        for reader in self._readers:
            reader.take(events)

    def since(self, place: int) -> list[bytes] | None:
        """The events from a place on; None where they are in the store."""
        return self._events[place - self._first :] if place >= self._first else None

    def wake(self) -> None:
        """Have those who read along look again."""
        for reader in self._readers:
            reader.leave()

    async def read_along(self, write: Write | None, silence_s: float) -> int:
        """Have events written as they are added; returns how many were.

        It ends with the first event that cannot be written, when the client has room again, with ``wake``, and after
        silence.

        Args:
            write: writes events to a client that has all before them; None: it cannot, and is told of the first one.
            silence_s: seconds without an event.
        """
        reader, seen = _Reader(write), -1
        self._readers.add(reader)
        try:
            while seen < reader.count and not reader.left.done():
                seen = reader.count
                await asyncio.wait((reader.left,), timeout=silence_s)
        finally:
            self._readers.discard(reader)
        if reader.drain is not None:
            await reader.drain()
        return reader.count

    async def flush(self) -> None:
        """Write them to the store.

        Raises:
            LostError: the response was deleted.
            OpenAIError: 503 where the store cannot be used; they are kept for the next time.
        """
        async with self._flushing:
            if self._unsure:  # of a write that has failed it is not known whether it took place
                self._drop(len(await self._shelf.events(self._id, self._first, len(self._events))))
                self._unsure = False
            batch = self._events[:]
            if batch:
                try:
                    await self._shelf.append(self._id, batch)
                except OpenAIError:
                    self._unsure = True
                    raise
                self._drop(len(batch))

    def _drop(self, count: int) -> None:
        self.waiting -= sum(map(len, self._events[:count]))
        del self._events[:count]
        self._first += count


class _Reader:
    """One who has read all events, and gets the next ones at once."""

    def __init__(self, write: Write | None) -> None:
        self.count = 0
        self.drain: Drain | None = None
        self.left: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._write = write

    def take(self, events: list[bytes]) -> None:
        if self._write is not None and not self.left.done():
            self.count += len(events)
            self.drain = self._write(b"".join(events))
        if self._write is None or self.drain is not None:
            self.leave()

    def leave(self) -> None:
        if not self.left.done():
            self.left.set_result(None)
