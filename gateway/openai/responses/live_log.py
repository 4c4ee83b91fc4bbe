"""The events of a background response on their way to the store, for those who follow it here."""

from __future__ import annotations

import asyncio

from gateway.openai.errors import OpenAIError
from gateway.openai.responses.stored import Shelf

_ENDS = (b"event: response.completed\n", b"event: response.incomplete\n", b"event: response.failed\n")


class LiveLog:
    """Events that are not in the store yet; an event's place in the log is its sequence number.

    The last event of a stream is no part of it: it is made of the response as it was written, which tells its end.

    Attributes:
        waiting: bytes of them.
    """

    def __init__(self, shelf: Shelf, response_id: str) -> None:
        """Begin with none.

        Args:
            shelf: where the response is kept.
            response_id: of it.
        """
        self.waiting = 0
        self._shelf = shelf
        self._id = response_id
        self._first = 0
        self._events: list[bytes] = []
        self._changed: asyncio.Future[None] | None = None
        self._flushing = asyncio.Lock()
        self._unsure = False

    def add(self, data: bytes) -> int:
        """Add events, but for the last of the stream; returns their size.

        Args:
            data: whole events.
        """
        events = [event + b"\n\n" for event in data.split(b"\n\n") if event and not event.startswith(_ENDS)]
        self._events += events
        size = sum(map(len, events))
        self.waiting += size
        self.wake()
        return size

    def since(self, place: int) -> list[bytes] | None:
        """The events from a place on; None where they are in the store."""
        return self._events[place - self._first :] if place >= self._first else None

    def wake(self) -> None:
        """Have those who wait look again."""
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)
        self._changed = None

    async def wait(self, timeout: float) -> bool:
        """Wait for a change, at most ``timeout`` seconds; returns whether it came."""
        if self._changed is None:
            self._changed = asyncio.get_running_loop().create_future()
        done, _ = await asyncio.wait((self._changed,), timeout=timeout)
        return bool(done)

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
