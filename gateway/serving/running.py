"""One generation in flight: a task that reads the engine, and what it has ready for whoever answers the client."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType

from gateway.generation import (
    Engine,
    EngineChunk,
    EngineError,
    ErrorKind,
    GenerationRequest,
    Piece,
    SequenceAssembler,
    can_push,
)
from gateway.serving.deadlines import Deadlines, DeadlineTimer
from gateway.serving.pieces import Forward, PieceWithIds, PromptLogprobs
from gateway.serving.waiting import Waiter
from gateway.telemetry.metrics import ModelMetrics

_log = logging.getLogger(__name__)

_MOST_READY = 1024  # pieces that may wait for a slow client before the engine is no longer read
_CLEANUP_S = 2.0  # an answer waits no longer than this for the engine to acknowledge a cancel


class RunningGeneration:
    """An asynchronous context manager around one request to an engine; leaving it early cancels the request.

    Attributes:
        request: what the engine is asked for.
        ttft_s: seconds from the request's arrival to the first token, None before.
        assembler: what has become of the tokens so far: ``finish_reason`` and ``usage``.
        on_change: called whenever something is ready, besides waking who waits; for readers of several generations.
        at_once: how many of one answer's generations may run together.
    """

    def __init__(
        self,
        engine: Engine,
        request: GenerationRequest,
        assembler: SequenceAssembler,
        *,
        deadlines: Deadlines,
        metrics: ModelMetrics,
        arrived: float,
        at_once: int = 1,
    ) -> None:
        """Prepare; nothing is sent before the context is entered.

        Args:
            engine: what generates.
            request: what to generate.
            assembler: a fresh one for ``request``.
            deadlines: when to give up.
            metrics: counters of the served model.
            arrived: ``time.perf_counter()`` at the arrival of the HTTP request.
            at_once: how many of one answer's generations may run together, at least 1.
        """
        self.request = request
        self.assembler = assembler
        self.ttft_s: float | None = None
        self.on_change: Callable[[], None] | None = None
        self.at_once = at_once
        self._engine = engine
        self._keep_ids = request.params.return_token_ids
        self._ids_given = 0
        self._deadlines = deadlines
        self._metrics = metrics
        self._arrived = arrived
        self._behind = False
        self._last = 0.0  # when tokens came
        self._resumed = 0.0  # when the engine was last heard without tokens, or read again after a pause
        self._ready: list[Piece] = []
        self._responded = False
        self._finished = False
        self._complete = False
        self._error: EngineError | None = None
        self._gaps = metrics.inter_token  # shared: what is written to for each token of any stream stays in the cache
        self._waiter = Waiter()
        self._forward: Forward | None = None
        self._wait_for_room: Callable[[], Awaitable[None]] | None = None
        self._cancel_request: Callable[[], None] | None = None
        self._holding = False
        self._room = asyncio.Event()
        self._timer: DeadlineTimer | None = None  # from its beginning on

    def queue_behind(self) -> None:
        """Let it wait for others of its answer: its first token is due after its own beginning, its end as before."""
        self._behind = True

    async def __aenter__(self) -> RunningGeneration:
        elapsed = time.perf_counter() - self._arrived
        self._timer = DeadlineTimer(
            self._deadlines,
            elapsed=elapsed,
            waited=elapsed if self._behind else 0.0,
            heard=self._last_heard,
            expire=self._expire,
        )
        self._metrics.in_flight.inc()
        self._task = asyncio.create_task(self._read())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await leave((self,))

    def _cancel(self) -> None:
        if not self._finished:
            self._metrics.cancelled.inc()
            self._finish()
            self._stop_reading()

    def abort(self, error: EngineError) -> None:
        """End it with an error, as if its engine had failed; without effect before it begins and after its end."""
        if self._timer is not None and not self._finished:
            self._fail(error)
            self._stop_reading()

    async def responded(self, timeout: float | None = None) -> bool:
        """Wait for the engine's first response, at most ``timeout`` seconds; whether it came.

        Raises:
            EngineError: when the engine failed before it responded, or a deadline passed.
        """
        while not self._responded:
            if self._finished:
                await self._check_outcome()
            if not await self._waiter.wait(timeout):
                break
        return self._responded

    async def pieces(self, timeout: float | None = None, forward: Forward | None = None) -> list[Piece] | None:
        """Wait for text; returns all that is ready, nothing after ``timeout`` seconds of silence, None at the end.

        Args:
            timeout: seconds of silence after which to return; None waits for ever.
            forward: takes pieces in the meantime, one after the other and in the task that reads the engine: no task
                has to be woken for them. The end of the answer is returned.

        Raises:
            EngineError: when the engine failed or a deadline passed; all pieces before that were returned.
        """
        while not self._ready:
            if self._finished:
                await self._check_outcome()
                return None
            # Only while this waits: whoever called it is not writing then, so that nothing is overtaken.
            self._forward = forward
            try:
                if not await self._waiter.wait(timeout):
                    return []
            finally:
                self._forward = None
        return self._take_ready()

    async def poll(self) -> list[Piece] | None:
        """All that is ready now, as ``pieces`` would return it, without waiting for the engine.

        Raises:
            EngineError: as ``pieces``.
        """
        if self._finished and not self._ready:
            await self._check_outcome()
            return None
        return self._take_ready()

    @property
    def prompt_logprobs(self) -> PromptLogprobs | None:
        """Of the prompt, once the engine gave them; None before, and when they were not asked for."""
        given = self.assembler.prompt_logprobs
        return None if given is None else PromptLogprobs(given, self.assembler.prompt_top_logprobs)

    @property
    def last_token(self) -> float:
        """``time.perf_counter()`` when tokens last came; 0 before."""
        return self._last

    @property
    def has_responded(self) -> bool:
        """Whether the engine's first response came."""
        return self._responded

    def _take_ready(self) -> list[Piece]:
        ready, self._ready = self._ready, []
        self._room.set()
        return ready

    async def _check_outcome(self) -> None:
        """Raise unless the answer is complete: nobody may take a part for the whole."""
        if self._error is not None:
            raise self._error
        if not self._complete:
            await asyncio.wait((self._task,))
            defect = None if self._task.cancelled() else self._task.exception()
            _log.error("the answer to %s could not be read", self.request.id, exc_info=defect)
            self._metrics.failures[ErrorKind.INTERNAL.value].inc()
            asked = self.request.id.rpartition("-")[0]  # the HTTP request's own id
            self._error = EngineError(
                ErrorKind.INTERNAL,
                f"The engine's answer could not be read; the gateway's log has the cause under the request id {asked}.",
            )
            raise self._error

    def _wake(self) -> None:
        self._waiter.wake()
        if self.on_change is not None:
            self.on_change()

    def _expire(self, message: str) -> None:
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
        if self._timer is not None:
            self._timer.stop()
            self._timer = None  # which holds this
        self._waiter.stop()
        self._gaps.flush()
        self._metrics.in_flight.dec()
        if self._responded:
            usage = self.assembler.usage
            self._metrics.prompt_tokens.inc(usage.prompt_tokens)
            self._metrics.completion_tokens.inc(usage.completion_tokens)
            self._metrics.surplus_tokens.inc(self.assembler.surplus_tokens)
            if self._complete and usage.predicted is not None:
                self._metrics.accepted_tokens.inc(usage.predicted.accepted)
                self._metrics.rejected_tokens.inc(usage.predicted.rejected)
        self._wake()

    async def _read(self) -> None:
        """Read the engine to the end of the answer. Runs as a task of its own, the only one that touches the engine."""
        engine = self._engine
        if can_push(engine):
            chunks = engine.generate_pushing(self.request, self._take_tokens, self._take_cancel)
        else:
            chunks = engine.generate(self.request)
        try:
            async for chunk in chunks:
                if self._wait_for_room is not None:
                    await self._hold(self._wait_for_room())
                    self._wait_for_room = None
                piece = self._take(chunk)
                if piece is not None and self._forward is not None:
                    self._wait_for_room = self._forward((piece,))
                    continue
                if self._finished:
                    break
                if len(self._ready) >= _MOST_READY:
                    self._room.clear()
                    await self._hold(self._room.wait())
            self._fail(EngineError(ErrorKind.INTERNAL, "The engine ended its answer without a final response."))
        except EngineError as error:
            self._fail(error)
        except asyncio.CancelledError:
            if not self._finished:  # else it was this that cancelled it, and a task that has failed keeps its frames
                raise
        finally:
            self._finish()
            await chunks.aclose()

    async def _hold(self, room: Awaitable[object]) -> None:
        """Leave the engine unread until there is room; what it has sent meanwhile is not late."""
        self._holding = True
        try:
            await room
        finally:
            self._holding = False
            self._resumed = time.perf_counter()

    def _last_heard(self) -> float | None:
        """When the engine last had something to say, for its deadlines; None before its first response."""
        if not self._responded:
            return None
        return time.perf_counter() if self._holding else max(self._last, self._resumed)

    def _take_cancel(self, cancel: Callable[[], None]) -> None:
        self._cancel_request = cancel

    def _stop_reading(self) -> None:
        """End the task that reads the engine, and the request with it.

        Where it can, by its request: grpcio loses memory, 0.6 KB a time, when a task is cancelled that waits for it.
        """
        if self._cancel_request is None or self._holding:
            self._task.cancel()
        else:
            self._cancel_request()

    def _take_tokens(self, tokens: Sequence[int]) -> int:
        """Forward tokens that came alone, without waking the task that reads the engine; how many, from the first on.

        None before the first that the task has read, as ``Pushing`` demands.
        Whoever is forwarded to is not overtaken: nothing is waiting, here or before a client that has no room.
        """
        forward = self._forward
        if forward is None or self._ready or self._wait_for_room is not None or self._finished or self.ttft_s is None:
            return 0
        taken, feed = 0, self.assembler.feed_token
        texts: list[str] = []
        for token in tokens:
            text = feed(token)
            if text is None:
                break
            taken += 1
            if text:
                texts.append(text)
        if taken:
            now = time.perf_counter()
            self._gaps.observe((now - self._last) / taken, taken)
            self._last = now
        if texts:
            self._waiter.heard = now
            self._wait_for_room = forward(texts)
        return taken

    def _take(self, chunk: EngineChunk) -> Piece | None:
        """What the engine says next; returns a piece that is to be forwarded, all others are made ready."""
        self._observe(len(chunk.ids) or chunk.output_tokens or bool(chunk.text))
        piece = self.assembler.feed(chunk)
        ended = self.assembler.stopped or chunk.final
        if piece is not None:
            if self._keep_ids:
                piece = self._with_ids(piece)
            if self._forward is not None and not ended and not self._ready:
                self._waiter.heard = self._last
                return piece
            self._ready.append(piece)
        elif self._responded and not ended:
            return None
        if not self._responded:  # what the engine gives up before it has said anything is an error with its true status
            self._responded = piece is not None or self.assembler.failure is None
        if ended:
            self._take_end()
        self._wake()
        return None

    def _take_end(self) -> None:
        piece = self.assembler.finish()
        if self._keep_ids and (piece is not None or len(self.assembler.token_ids) > self._ids_given):
            piece = self._with_ids(piece or Piece(""))
        if piece is not None:
            self._ready.append(piece)
        self._complete = True
        self._finish()

    def _with_ids(self, piece: Piece) -> PieceWithIds:
        """The piece with the ids that usage counts and no piece before it had."""
        start, ids = self._ids_given, self.assembler.token_ids
        self._ids_given = max(start, len(ids))
        return PieceWithIds(piece.text, piece.logprobs, ids[start:])

    def _observe(self, tokens: int) -> None:
        """Note that ``tokens`` came together, in one response."""
        if not tokens:
            self._resumed = time.perf_counter()
            return
        now = time.perf_counter()
        if self.ttft_s is None:
            self.ttft_s = now - self._arrived
            if not self._behind:  # its wait for others of its answer is no delay of the engine
                self._metrics.ttft.observe(self.ttft_s)
        else:
            self._gaps.observe((now - self._last) / tokens)
        self._last = now


async def leave(generations: Sequence[RunningGeneration]) -> None:
    """Leave the contexts of generations: cancel what has not ended, and wait a moment until that is done.

    All are cancelled before anything is waited for, because whoever waits may be cancelled, too.
    """
    for generation in generations:
        generation._cancel()  # noqa: SLF001 - of the same module
    # A finished generation is not cancelled: its task may be telling the engine to stop.
    tasks = [generation._task for generation in generations if not generation._task.done()]  # noqa: SLF001
    if tasks:
        await asyncio.wait(tasks, timeout=_CLEANUP_S)
