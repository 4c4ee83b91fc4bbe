"""Background responses: their generation without a client, and storage of their events."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Final

from gateway.api.openai.endpoint import stream
from gateway.api.openai.errors import SERVER, OpenAIError
from gateway.api.openai.responses.answer import ResponsesAnswer, ResponsesEvents
from gateway.api.openai.responses.stored import ResponseLostError, ResponseStore, StoredResponse
from gateway.generation.relay.interface import Drain, StreamOutput, Write
from gateway.generation.relay.text_events import one_line
from gateway.http.access.permit import permit
from gateway.http.access_log import RequestRecord, log_background
from gateway.serving.registry import Registry
from gateway.settings import TimeoutSettings

_ENDS = (b"event: response.completed\n", b"event: response.incomplete\n", b"event: response.failed\n")

_log = logging.getLogger(__name__)
_FLUSH_S = 0.5  # a write for each event would cost more than all other work on it
_RENEW_S = 3.0  # between renewals of the lease, which lasts some times longer
_MOST_WAITING = 2**20  # bytes of events that may wait for the store before reading of the engine stops
_UNREACHABLE_S = 30.0  # that a store may be unreachable: what was generated is worth the wait
_AGAIN_S = 0.5
_ABORT_S = 5.0  # for runs to write their end
_SHUT_DOWN = "The gateway is shutting down."

MOST_LOGGED: Final = 64 * 2**20
"""Bytes of events that are kept of one response."""


class LiveEventLog:
    """The events of a response that are not in the store yet, by their sequence numbers.

    The log does not hold a stream's last event, which is made from the stored response.

    Attributes:
        size: bytes of all events that were added.
        waiting: bytes of events that are not in the store.
    """

    def __init__(self, response_store: ResponseStore, response_id: str) -> None:
        """Begin with none.

        Args:
            response_store: where the response is kept.
            response_id: of it.
        """
        self.size = 0
        self.waiting = 0
        self._shelf = response_store
        self._id = response_id
        self._first = 0
        self._events: list[bytes] = []
        self._readers: set[_Reader] = set()
        self._flushing = asyncio.Lock()
        self._unsure = False

    def add(self, data: bytes) -> None:
        """Add events; the last event of the stream is left out.

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
        """The events from a sequence number on; None where they are in the store."""
        return self._events[place - self._first :] if place >= self._first else None

    def wake(self) -> None:
        """Wake all readers."""
        for reader in self._readers:
            reader.leave()

    async def read_along(self, write: Write | None, silence_s: float) -> int:
        """Write events to a client as they are added; returns how many were written.

        Reading ends after an event that fills the client's buffer, once the buffer has room again, and after ``wake``
        or silence.

        Args:
            write: writes events to a client that has all earlier events; None: the first new event ends the reading.
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
        """Write the waiting events to the store.

        Raises:
            ResponseLostError: the response was deleted.
            OpenAIError: 503 where the store cannot be used; the events wait for the next call.
        """
        async with self._flushing:
            if self._unsure:  # a failed write may have taken place
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
    """Writes new events immediately to a client that has read all earlier ones."""

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


class BackgroundRun:
    """The generation of one background response.

    Attributes:
        answer: the answer.
        log: events that are not in the store yet; None where events are not stored.
        ended: set when the end of the response is written or lost.
    """

    def __init__(
        self, response_store: ResponseStore, answer: ResponsesAnswer, record: RequestRecord, timeouts: TimeoutSettings
    ) -> None:
        """Prepare; nothing is written or generated before ``begin``.

        Args:
            response_store: where it is kept.
            answer: whose generation has not begun.
            record: its own, for the access log.
            timeouts: of streams.
        """
        self.answer = answer
        self.ended = asyncio.Event()
        self._shelf = response_store
        self._record = record
        self._timeouts = timeouts
        self._events = ResponsesEvents(answer)
        self._first = answer.stored("queued", answer.own("queued"))
        self.log = LiveEventLog(response_store, answer.id) if self._first.streamed else None
        self._version = 0
        self._generating: asyncio.Task[None] | None = None
        self._shut = False

    async def begin(self) -> None:
        """Store the response as queued.

        Raises:
            OpenAIError: 503 where the store cannot be used.
        """
        await self._shelf.begin(self.answer.id, self._first)
        self._version = 1
        opening = self._events.queued()
        if self.log is not None:
            self.log.add(opening)

    async def go(self) -> None:
        """Generate the response, and write its end."""
        self._generating = asyncio.create_task(self._generate())
        watching = asyncio.create_task(self._watch())
        try:
            await asyncio.wait((self._generating,))
        finally:
            watching.cancel()
            self._generating.cancel()
        try:
            self._check_outcome(self._generating)
            await self._write_end()
        finally:
            self.ended.set()
            if self.log is not None:
                self.log.wake()
            log_background(self._record, self.answer.id, self.answer.end[0] if self.answer.end else "failed")

    def stop(self, *, shut: bool = False) -> None:
        """Stop the generation; the output so far is stored.

        Args:
            shut: whether the gateway shuts down: the response has failed then; else it is cancelled.
        """
        self._shut = self._shut or shut
        if self._generating is not None:
            self._generating.cancel()

    async def _generate(self) -> None:
        answer = self.answer
        given = stream(answer, self._events, StreamOutput(self._take), self._record, self._timeouts)
        begun = False
        async with aclosing(given) as events:
            async for data in events:
                if data.startswith(b":"):
                    continue
                if not begun:
                    begun = True
                    await self._put(answer.stored("in_progress", answer.own("in_progress")))
                if (drain := self._take(data)) is not None:
                    await drain()

    def _take(self, data: bytes) -> Drain | None:
        """Put events into the log; returns what to wait for where there are too many."""
        if self.log is None:
            return None
        self.log.add(data)
        return self._drain if self.log.waiting > _MOST_WAITING or self.log.size > MOST_LOGGED else None

    async def _drain(self) -> None:
        if self.log is None:
            return
        if self.log.size > MOST_LOGGED:
            message = f"The events of the response are larger than {MOST_LOGGED} bytes, the most that is stored."
            raise OpenAIError(500, message, type=SERVER)
        await self._patiently(self.log.flush)

    async def _watch(self) -> None:
        """Write waiting events, renew the lease, and stop when the response was ended elsewhere."""
        renewed = time.monotonic()
        while True:
            await asyncio.sleep(_FLUSH_S)
            now = time.monotonic()
            try:
                if self.log is not None:
                    await self.log.flush()
                if now - renewed >= _RENEW_S:
                    await self._shelf.renew(self.answer.id)
                    renewed = now
                elif not await self._shelf.leased(self.answer.id):
                    self.stop()
            except ResponseLostError:
                self.stop()
            except OpenAIError:  # the store may come back before the lease has ended
                continue

    def _check_outcome(self, generating: asyncio.Task[None]) -> None:
        """Have the answer say how it has ended."""
        error = None if generating.cancelled() else generating.exception()
        if error is None and not generating.cancelled():
            return
        if isinstance(error, OpenAIError):
            self._record.error = error.code or error.type
            self.answer.failed(error)
        elif self._shut:
            self.answer.failed(OpenAIError(503, _SHUT_DOWN, type=SERVER))
        elif error is None or isinstance(error, ResponseLostError):
            self.answer.cancelled()
        else:
            about = {"event": "background_failed", "request_id": self._record.request_id}
            _log.error("the background response %s could not be generated", self.answer.id, exc_info=error, extra=about)
            self.answer.failed(OpenAIError(500, "The gateway failed to process the request.", type=SERVER))

    async def _write_end(self) -> None:
        """Write all events and the response, which keeps a status that was set elsewhere."""
        answer, response_store = self.answer, self._shelf
        try:
            if self.log is not None:
                await self._patiently(self.log.flush)
            await self._put(answer.stored_end(), answer.write_end)
        except ResponseLostError:
            await self._write_cancelled()
        except OpenAIError as error:
            about = {"event": "background_not_kept", "request_id": self._record.request_id}
            _log.error(
                "the end of the background response %s could not be stored: %s", answer.id, error.message, extra=about
            )
            failed = self._first.ended("failed", error={"code": "server_error", "message": error.message})
            with contextlib.suppress(OpenAIError, ResponseLostError):  # readers see that the lease has ended
                await response_store.put(answer.id, failed, self._version)
        with contextlib.suppress(OpenAIError):
            await response_store.release(answer.id)

    async def _put(
        self, stored: StoredResponse, put: Callable[[ResponseStore, int], Awaitable[object]] | None = None
    ) -> None:
        """Write the response.

        Args:
            stored: all of it.
            put: writes it over a version of its document, with more; None: nothing more.
        """

        async def write() -> None:
            try:
                if put is None:
                    await self._shelf.put(self.answer.id, stored, self._version)
                else:
                    await put(self._shelf, self._version)
            except ResponseLostError:
                # By a write whose response was lost it may be there already.
                if not await self._shelf.holds(self.answer.id, stored, self._version + 1):
                    raise
            self._version += 1

        await self._patiently(write)

    async def _patiently(self, write: Callable[[], Awaitable[None]]) -> None:
        """Write, again while the store is unreachable for a short time, unless the gateway is shutting down."""
        begun = time.monotonic()
        while True:
            try:
                return await write()
            except OpenAIError as error:
                waited = time.monotonic() - begun
                if error.code != "store_unavailable" or waited >= _UNREACHABLE_S or self._shut:
                    raise
            await asyncio.sleep(_AGAIN_S)

    async def _write_cancelled(self) -> None:
        with contextlib.suppress(OpenAIError, ResponseLostError):
            found = await self._shelf.find(self.answer.id)
            if found is not None and found[0].status == "cancelled":
                self.answer.cancelled()
                await self._shelf.put(self.answer.id, self.answer.stored_end(), found[1])


class BackgroundRuns:
    """The background responses that this process generates."""

    def __init__(self, limit: int, registry: Registry, timeouts: TimeoutSettings) -> None:
        """Begin with none.

        Args:
            limit: at a time.
            registry: of served models.
            timeouts: of streams.
        """
        self._most = limit
        self._registry = registry
        self._timeouts = timeouts
        self._runs: dict[tuple[str, str], BackgroundRun] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def find(self, response_store: ResponseStore, response_id: str) -> BackgroundRun | None:
        """Find the running generation of a response in this process; None without one."""
        return self._runs.get((response_store.owner, response_id))

    async def begin(self, response_store: ResponseStore, answer: ResponsesAnswer, record: RequestRecord) -> None:
        """Begin to generate a response.

        Args:
            response_store: the store of the response.
            answer: an answer whose generations do not run yet.
            record: a copy of the request's record.

        Raises:
            OpenAIError: 429 where too many run already, 503 where the store cannot be used.
        """
        if len(self._runs) >= self._most:
            message = "Too many background responses are being generated; try again later."
            code = "rate_limit_exceeded"
            raise OpenAIError(429, message, type="rate_limit_error", code=code, headers={"Retry-After": "1"})
        run, place = BackgroundRun(response_store, answer, record, self._timeouts), (response_store.owner, answer.id)
        self._runs[place] = run
        try:
            await run.begin()
        except BaseException:  # the caller was cancelled, too
            del self._runs[place]
            raise
        granted = permit()
        if granted is not None:
            granted.hold()  # until the response is complete
        task = asyncio.create_task(self._go(run, place))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def idle(self) -> None:
        """Wait until no response is generated."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def close(self) -> None:
        """Stop all background responses and mark them failed."""
        for run in self._runs.values():
            run.stop(shut=True)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_ABORT_S)

    async def _go(self, run: BackgroundRun, place: tuple[str, str]) -> None:
        ended = asyncio.get_running_loop().create_future()
        self._registry.running.add(ended)
        try:
            await run.go()
        finally:
            self._registry.running.discard(ended)
            ended.set_result(None)
            del self._runs[place]
            granted = permit()
            if granted is not None:
                granted.release()
