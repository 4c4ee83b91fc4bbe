"""One generation in flight: a task that reads the engine, and pieces for the responding task."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from types import TracebackType

from gateway.generation import (
    EngineChunk,
    EngineError,
    ErrorKind,
    GenerationRequest,
    Piece,
    SequenceAssembler,
    Usage,
)
from gateway.generation.relay.interface import Forward
from gateway.generation.relay.token_relay import TokenRelay
from gateway.generation.route import AdmittedGeneration, EngineLookup, Route, generator_of
from gateway.serving.deadlines import Deadlines, DeadlineTimer, Waiter
from gateway.telemetry.metrics import ModelMetrics
from gateway.telemetry.traces import EngineCall, current_trace

_log = logging.getLogger(__name__)

_MOST_READY = 1024  # pieces that may wait for a slow client before the engine is read no further
_CLEANUP_S = 2.0  # an answer waits no longer than this for the engine to acknowledge a cancel

Ready = list[tuple[int, list[Piece], bool]]
"""By choice of an answer: its index, new pieces, and whether it is complete with them."""


class Generation:
    """One request to an engine, as a context; leaving it early cancels the request.

    A single generation is also all generations of an answer; see ``generation_group.Generations``.

    Attributes:
        request: the request to the engine.
        ttft_s: seconds from the request's arrival to the first token, None before.
        responded: whether the engine's first response came.
        waited_s: seconds of waiting for its turn.
        address: address of the last endpoint, where there are several; else empty.
        assembler: makes text, ``finish_reason`` and ``usage`` from the tokens so far.
        complete: whether the engine has ended and the answer is complete.
        done: whether ``ready`` has returned all of the answer.
        on_end: called with the usage at the end, if the engine has responded.
        running: a set that holds the generation while it runs; None without one.
        max_parallel: most generations of one answer at a time.
    """

    def __init__(
        self,
        lookup: EngineLookup,
        request: GenerationRequest,
        assembler: SequenceAssembler,
        *,
        deadlines: Deadlines,
        metrics: ModelMetrics,
        arrived: float,
        max_parallel: int = 1,
        relay: bool = True,
    ) -> None:
        """Prepare; nothing is sent before it is started.

        Args:
            lookup: to the engine that generates.
            request: what to generate.
            assembler: a fresh one for ``request``.
            deadlines: when to give up.
            metrics: counters of the served model.
            arrived: ``time.perf_counter()`` at the arrival of the HTTP request.
            max_parallel: how many generations of one answer may run at a time, at least 1.
            relay: whether tokens may skip the responding task (``gateway.generation.relay``).
        """
        self.request = request
        self.assembler = assembler
        self.ttft_s: float | None = None
        self.responded = False
        self.address = ""
        self.waited_s = 0.0
        self.complete = False
        self.done = False
        self.on_end: Callable[[Usage], None] | None = None
        self.running: set[Generation] | None = None
        self.max_parallel = max_parallel
        self._lookup = lookup
        self._route: Route | None = None  # from its beginning on
        self._lost: EngineError | None = None
        self._keep_ids = request.params.return_token_ids
        self._ids_given = 0
        self._deadlines = deadlines
        self._metrics = metrics
        self._arrived = arrived
        self._queued = False
        self._ready: list[Piece] = []
        self._finished = False
        self._given_up = False
        self._error: EngineError | None = None
        # One metric for all streams of a model: memory that every token touches stays in the processor's cache.
        self._relay = TokenRelay(assembler.feed_alone, assembler.feed_scored, metrics.inter_token.observe)
        self._trace = current_trace()
        self._call: EngineCall | None = None  # of the trace, while a request is in flight
        self._said: list[str] | None = [] if self._trace is not None and self._trace.content else None
        self._may_relay = relay and self._said is None
        self._usage: Usage | None = None  # at its end
        self._waiter = Waiter(self._relay)
        self._cancel_request: Callable[[], None] | None = None
        self._holding = False
        self._room: asyncio.Event | None = None  # once it has had to wait for room
        self._timer: DeadlineTimer | None = None  # from its beginning on

    def start(self, *, queued: bool = False) -> None:
        """Send the request to the engine.

        Args:
            queued: whether it had to wait for others of its answer. Then its first token is due relative to this
                beginning, its end still relative to the request's arrival.
        """
        elapsed = time.perf_counter() - self._arrived
        self._queued = queued
        self._timer = DeadlineTimer(
            self._deadlines,
            elapsed=elapsed,
            waited=elapsed if queued else 0.0,
            responded_at=self._last_response,
            expire=self._expire,
        )
        if self.running is not None:
            self.running.add(self)
        self._metrics.in_flight.inc()
        self._task = asyncio.create_task(self._read())

    async def __aenter__(self) -> Generation:
        self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._finished or not self._task.done():
            await cancel_all((self,))

    def notify(self, ready: Callable[[], None]) -> None:
        """Call ``ready`` when output is ready; for readers of several generations."""
        self._waiter.on_wake = ready

    def abort(self, error: EngineError) -> None:
        """End the generation with an error, as if the engine had failed; without effect when it does not run."""
        if self._timer is not None and not self._finished:
            self._fail(error)
            self._stop_reading()

    async def wait_for_response(self, timeout: float | None = None) -> bool:
        """Wait for the engine's first response for some seconds; returns whether it came.

        Raises:
            EngineError: when the engine failed before it responded, or a deadline passed.
        """
        while not self.responded:
            if self._finished:
                await self._check_outcome()
            if not await self._waiter.wait(timeout):
                break
        return self.responded

    async def ready(self, timeout: float | None = None, forward: Forward | None = None) -> Ready | None:
        """Wait for output; returns all that is ready, nothing after some seconds of silence, None at the end.

        The completion of the answer is returned by itself, without pieces.

        Args:
            timeout: seconds of silence after which to return; None waits for ever.
            forward: takes pieces in the meantime, one after the other and in the task that reads the engine: no task
                has to be woken for them. The end of the answer is returned.

        Raises:
            EngineError: when the engine failed or a deadline passed; all pieces before that were returned.
        """
        while not self._ready:
            if self._finished:
                if self._error is not None or not self.complete:
                    await self._check_outcome()
                if self.done:
                    return None
                self.done = True
                return [(0, [], True)]
            # Only while this waits: the caller is not writing then, so that no event overtakes another.
            self._relay.forward = forward if self._may_relay else None
            try:
                if not await self._waiter.wait(timeout):
                    return []
            finally:
                self._relay.forward = None
        return [(0, self._take_ready(), False)]

    async def poll(self) -> list[Piece] | None:
        """Return the pieces that are ready now, None at the end, without waiting for the engine.

        Raises:
            EngineError: as ``ready``.
        """
        if self._finished and not self._ready:
            await self._check_outcome()
            return None
        return self._take_ready()

    def usage(self) -> Usage:
        """Count tokens so far."""
        return self._usage or self.assembler.usage

    @property
    def prompt_tokens(self) -> int:
        """The tokens of the prompt; see ``gateway.generation.health.WatchedRequest``."""
        return len(self.request.prompt.ids)

    def lost(self) -> None:
        """Move to another endpoint, or fail; see ``gateway.generation.health.WatchedRequest``."""
        error = EngineError(ErrorKind.UNAVAILABLE, "The model became unavailable before the end of its answer.")
        if self.responded:
            self.abort(error)
        else:
            self._lose(error)

    def responded_at(self) -> float | None:
        """``time.perf_counter()`` at the latest response; see ``gateway.generation.health.WatchedRequest``."""
        return None if self._holding or not self.responded else max(self._relay.last, self._relay.resumed)

    def _take_ready(self) -> list[Piece]:
        ready, self._ready = self._ready, []
        if self._room is not None:
            self._room.set()
        return ready

    async def _check_outcome(self) -> None:
        """Raise unless the answer is complete: a part must not be taken for the whole."""
        if self._error is not None:
            raise self._error
        if not self.complete:
            await asyncio.wait((self._task,))
            defect = None if self._task.cancelled() else self._task.exception()
            asked = self.request.id.rpartition("-")[0]  # the HTTP request's own id
            about = {"event": "answer_unreadable", "request_id": asked}
            _log.error("the response to %s could not be read", self.request.id, exc_info=defect, extra=about)
            self._metrics.failures[ErrorKind.INTERNAL.value].inc()
            self._error = EngineError(
                ErrorKind.INTERNAL,
                "The engine's response could not be read; the gateway's log has the cause under the request id "
                f"{asked}.",
            )
            raise self._error

    def _expire(self, message: str, unanswered: bool) -> None:
        self._given_up = unanswered
        self._fail(EngineError(ErrorKind.TIMEOUT, message))
        self._stop_reading()

    def _fail(self, error: EngineError) -> None:
        if not self._finished:
            self._error = error
            self._metrics.failures[error.kind.value].inc()
            self._finish()

    def _finish(self) -> None:
        """The one end of every generation, however it ended."""
        if self._finished:
            return
        self._finished = True
        if self.running is not None:
            self.running.discard(self)
        if self._timer is not None:
            self._timer.stop()
            self._timer = None  # the timer refers to this object
        self._waiter.stop()
        late = self._error is not None and self._error.kind is ErrorKind.TIMEOUT and not self._given_up
        self._leave_route(None if late else self._error)
        metrics = self._metrics
        metrics.inter_token.flush()
        metrics.in_flight.dec()
        if self.responded:
            usage = self._usage = self.assembler.usage
            metrics.prompt_tokens.inc(usage.prompt_tokens)
            metrics.completion_tokens.inc(usage.completion_tokens)
            metrics.surplus_tokens.inc(self.assembler.surplus_tokens)
            if self.on_end is not None:
                self.on_end(usage)
            if self.complete and usage.predicted is not None and any(usage.predicted):
                metrics.accepted_tokens.inc(usage.predicted.accepted)
                metrics.rejected_tokens.inc(usage.predicted.rejected)
        self._waiter.wake()

    async def _read(self) -> None:
        """Read an engine to the end of the answer. Runs as a task of its own, the only one that touches the engine."""
        admitted: AdmittedGeneration | None = None
        try:
            if self._lookup.enter is not None:
                admitted = await self._lookup.enter()
                self.waited_s = admitted.waited_s
                if self.waited_s:
                    self._metrics.waits.observe(self.waited_s)
            route = await self._lookup.find()
            while (error := await self._follow(route)) is not None:
                self._cancel_request = None
                self._leave_route(error)
                # A generation that was given up is cancelled at its engine, and may still hear that the engine is dead.
                other = None if self.responded or self._finished else await route.elsewhere(error)
                if other is None:
                    raise error
                self._metrics.elsewhere.inc()
                route = other
        except EngineError as error:
            self._fail(error)
        except asyncio.CancelledError:
            if not self._finished:  # else it was this that cancelled it, and a task that has failed keeps its frames
                raise
        finally:
            if not self._finished:
                self._finish()
            if admitted is not None:
                usage = self._usage
                admitted.leave(0 if usage is None else usage.prompt_tokens + usage.completion_tokens)

    async def _follow(self, route: Route) -> EngineError | None:
        """Read the engine of one route to the end of the answer; returns its failure, if it failed."""
        self._take_route(route)
        relay, chunks = self._relay, self._chunks(route)
        failure: EngineError | None = None
        try:
            async for chunk in chunks:
                if relay.drain is not None:
                    await self._hold(relay.drain())
                    relay.drain = None
                if relay.forward is not None and relay.take_chunk(chunk):
                    continue
                self._take(chunk)
                if self._finished:
                    break
                if len(self._ready) >= _MOST_READY:
                    self._room = asyncio.Event()
                    await self._hold(self._room.wait())
            failure = None if self._finished else self._lost or _unended()
        except EngineError as error:
            failure = self._lost or error
        except asyncio.CancelledError:
            if self._lost is None or self._finished:
                raise
            failure = self._lost
        finally:
            if not self._finished:
                self._note_failure(failure)
            await chunks.aclose()
        return failure

    def _note_failure(self, failure: EngineError | None) -> None:
        """End with what a route has come to, unless the answer may still come by another one."""
        if failure is None:
            self._finish()
        elif self.responded:
            self._fail(failure)

    def _take_route(self, route: Route) -> None:
        self._route, self._lost = route, None
        self.address = route.address
        route.lose = self._lose
        self._relay.pause_s, self._relay.paused = route.health.pause_s, route.health.paused
        if self._trace is not None:
            self._call = self._trace.call(self.request, self._metrics.model, route.address)
        if route.notes is not None:
            route.notes.began()
        route.health.began(self)

    def _leave_route(self, error: EngineError | None) -> None:
        """Tell the route how the request ended; once for each."""
        if self._call is not None:
            self._end_call(error or self._error)
        route, self._route = self._route, None
        if route is not None:
            route.lose = None
            failed = error is not None and error.kind is ErrorKind.INTERNAL
            route.health.ended(self, given_up=self._given_up, failed=failed)
            if route.notes is not None:
                route.notes.ended(error)

    def _end_call(self, error: EngineError | None) -> None:
        """Tell the trace how the request ended; once for each."""
        call, self._call = self._call, None
        if call is not None:
            failure = None if self.complete else "cancelled" if error is None else error.kind.value
            call.ended(
                self.assembler.usage if self.responded else None,
                self.assembler.finish_reason if self.complete else None,
                failure,
                "".join(self._said) if self._said is not None else None,
            )

    def _lose(self, error: EngineError) -> None:
        """Go elsewhere: the engine was found dead, and there is nothing of the answer yet."""
        if not self.responded and not self._finished:
            self._lost = error
            self._stop_reading()

    def _chunks(self, route: Route) -> AsyncGenerator[EngineChunk, None]:
        engine = generator_of(route) if self._lookup.fit is None else self._lookup.fit(route)
        request = self.request if self._call is None else self._call.carried(self.request)
        relayed = getattr(engine, "generate_relayed", None)  # as ``can_relay`` asks
        if relayed is None:
            return engine.generate(request)
        chunks: AsyncGenerator[EngineChunk, None] = relayed(
            request, self._relay.take if self._may_relay else None, self._take_cancel
        )
        return chunks

    async def _hold(self, room: Awaitable[object]) -> None:
        """Leave the engine unread until there is room; what it has sent meanwhile is not late."""
        self._holding = True
        try:
            await room
        finally:
            self._holding = False
            self._relay.resumed = time.perf_counter()

    def _last_response(self) -> float | None:
        """When the engine last had something to say, for its deadlines; None before its first response."""
        if not self.responded:
            return None
        return time.perf_counter() if self._holding else max(self._relay.last, self._relay.resumed)

    def _take_cancel(self, cancel: Callable[[], None]) -> None:
        self._cancel_request = cancel

    def _cancel(self) -> None:
        self._metrics.cancelled.inc()
        if self._route is not None:
            self._metrics.spared_tokens.inc(max(0, self.request.max_tokens - self.assembler.usage.completion_tokens))
        self._finish()
        self._stop_reading()

    def _stop_reading(self) -> None:
        """End the task that reads the engine, and the request with it.

        Where it can, by its request: grpcio loses memory, 0.6 KB a time, when a task is cancelled that waits for it.
        """
        if self._cancel_request is None or self._holding:
            self._task.cancel()
        else:
            self._cancel_request()

    def _take(self, chunk: EngineChunk) -> None:
        """Take what the engine says next: what there is of it to see is relayed, or made ready."""
        self._observe(len(chunk.ids) or chunk.output_tokens or bool(chunk.text))
        piece = self.assembler.feed(chunk)
        ended = self.assembler.stopped or chunk.final
        if piece is not None:
            if self._keep_ids or self._said is not None:
                piece = self._kept(piece)
            if self._relay.forward is not None and not ended:
                self._relay.show(piece)
                return
            self._ready.append(piece)
        elif self.responded and not ended:
            return
        if not self.responded:  # what the engine gives up before it has said anything is an error with its true status
            self.responded = piece is not None or self.assembler.failure is None
            if self.responded and self._route is not None:
                if self._route.notes is not None:
                    self._route.notes.responded()
                if self._call is not None:
                    self._call.responded(self.ttft_s)
        if ended:
            self._take_end()
        else:
            self._waiter.wake()

    def _take_end(self) -> None:
        piece = self.assembler.finish()
        if piece is not None or (self._keep_ids and len(self.assembler.token_ids) > self._ids_given):
            self._ready.append(self._kept(piece or Piece("")))
        self.complete = True
        self._finish()

    def _kept(self, piece: Piece) -> Piece:
        """Note the text for the trace; returns the piece with the ids that usage counts and no piece before it had."""
        if self._said is not None:
            self._said.append(piece.text)
        if not self._keep_ids:
            return piece
        start, ids = self._ids_given, self.assembler.token_ids
        self._ids_given = max(start, len(ids))
        return Piece(piece.text, piece.logprobs, ids[start:])

    def _observe(self, tokens: int) -> None:
        """Note that ``tokens`` came together, in one response."""
        now = time.perf_counter()
        if not tokens:
            self._relay.resumed = now
            return
        if self.ttft_s is None:
            self.ttft_s = now - self._arrived
            if not self._queued:  # a wait for others of its answer is not a delay of the engine
                self._metrics.ttft.observe(self.ttft_s)
        else:
            gap = now - self._relay.last
            self._metrics.inter_token.observe(gap / tokens)
            route = self._route
            if route is not None and gap > route.health.pause_s:
                route.health.paused(min(gap, now - self._relay.resumed))
        self._relay.last = now


def _unended() -> EngineError:
    return EngineError(ErrorKind.INTERNAL, "The engine ended the stream without a final response.")


async def cancel_all(generations: Sequence[Generation]) -> None:
    """Cancel running generations, and wait a moment until that is done.

    All are cancelled before the wait, because the waiting task may be cancelled, too.
    """
    tasks = []
    for generation in generations:
        # The task of a finished one is not cancelled: it may be telling the engine to stop.
        if not generation._finished:  # noqa: SLF001 - of the same module
            generation._cancel()  # noqa: SLF001
        if not generation._task.done():  # noqa: SLF001
            tasks.append(generation._task)  # noqa: SLF001
    if tasks:
        await asyncio.wait(tasks, timeout=_CLEANUP_S)
