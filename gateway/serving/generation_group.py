"""The generations of one answer: pieces as they come, each with its choice, and one usage over all."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from types import TracebackType
from typing import Any

from gateway.generation import EngineError, Piece, Predicted, Usage
from gateway.relay.interface import Forward
from gateway.serving.generation import Generation, cancel_all

Ready = list[tuple[int, list[Piece], bool]]
"""By choice: its index, new pieces, and whether it is complete with them."""


class GenerationGroup:
    """An asynchronous context manager around the generations of one answer; leaving it early cancels all of them.

    A single generation costs no more than by itself. Of several, ``max_parallel`` run at a time, so that one answer
    does not fill the engine's queue; the next is started when one was taken to its end. Each waits with a bounded
    number of pieces until they are taken; the failure of one is the failure of all.

    Attributes:
        generations: one for each choice, in order.
        done: whether everything of every choice was returned.
    """

    def __init__(self, generations: Sequence[Generation]) -> None:
        """Take generations that were not started; at least one."""
        self.generations = tuple(generations)
        self.done = False
        self._single = self.generations[0] if len(self.generations) == 1 else None
        self._changed = asyncio.Event()
        self._open = set(range(len(self.generations)))
        self._running: set[int] = set()
        self._started = 0

    async def __aenter__(self) -> GenerationGroup:
        if self._single is not None:
            self._single.start()
            self._started = 1
            return self
        for generation in self.generations:
            generation.on_change = self._changed.set
        self._start_next()
        return self

    def _start_next(self) -> None:
        """Start the generations whose turn it is."""
        while self._started < len(self.generations):
            generation = self.generations[self._started]
            if len(self._running) >= generation.max_parallel:
                break
            generation.start(queued=self._started > len(self._running))  # some have ended before it
            self._running.add(self._started)
            self._started += 1

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await cancel_all(self.generations[: self._started])

    def wait_for_response(self, timeout: float | None = None) -> Coroutine[Any, Any, bool]:
        """Wait for the first response of any generation, at most ``timeout`` seconds; returns whether it came.

        Raises:
            EngineError: when a generation failed before any responded, or a deadline passed.
        """
        return self._wait_for_any(timeout) if self._single is None else self._single.wait_for_response(timeout)

    async def _wait_for_any(self, timeout: float | None) -> bool:
        while True:
            self._changed.clear()
            started = self.generations[: self._started]
            if any(generation.responded for generation in started):
                return True
            for generation in started:
                await generation.poll()  # raises where one failed
            if not await self._wait(timeout):
                return False

    async def ready(self, timeout: float | None = None, forward: Forward | None = None) -> Ready | None:
        """Wait for text; returns all that is ready, nothing after ``timeout`` seconds of silence, None at the end.

        Args:
            timeout: seconds of silence after which to return; None waits for ever.
            forward: of a single generation, takes pieces in the meantime; see ``Generation.pieces``.

        Raises:
            EngineError: when a generation failed or a deadline passed; of that generation all pieces were returned.
        """
        if self._single is None or not self._open:
            return await self._ready_of_several(timeout)
        pieces = await self._single.pieces(timeout, forward)
        if pieces is None:
            self._open.clear()
            self.done = True
            return [(0, [], True)]
        return [(0, pieces, False)] if pieces else []

    async def _ready_of_several(self, timeout: float | None) -> Ready | None:
        while self._open:
            self._changed.clear()
            found: Ready = []
            for index in sorted(self._running):
                try:
                    pieces = await self.generations[index].poll()
                except EngineError:
                    if found:
                        return found  # the next call meets the error again
                    raise
                if pieces is None:
                    self._open.remove(index)
                    self.done = not self._open
                    self._running.remove(index)
                if pieces is None or pieces:
                    found.append((index, pieces or [], pieces is None))
            self._start_next()
            if found:
                return found
            if not await self._wait(timeout):
                return []
        return None

    async def _wait(self, timeout: float | None) -> bool:
        # Not wait_for: before Python 3.12 it swallows a cancellation that comes together with the event.
        waiting = asyncio.ensure_future(self._changed.wait())
        try:
            await asyncio.wait((waiting,), timeout=timeout)
        finally:
            waiting.cancel()
        return self._changed.is_set()

    @property
    def ttft_s(self) -> float | None:
        """Seconds from the request's arrival to the first token of any choice."""
        if self._single is not None:
            return self._single.ttft_s
        return min((each.ttft_s for each in self.generations if each.ttft_s is not None), default=None)

    @property
    def address(self) -> str | None:
        """The endpoints that answer, where there are several to choose from, else None."""
        if self._single is not None:
            return self._single.address or None
        return ",".join(sorted({each.address for each in self.generations})).strip(",") or None

    def usage(self) -> Usage:
        """Token counts so far over all choices; each prompt counts once, however many choices share it.

        ``cached_tokens`` are those of the first choice of each prompt, None where an engine told none; ``predicted``
        counts what each choice took over of the same prediction.
        """
        if self._single is not None:
            return self._single.usage or self._single.assembler.usage
        usages = [each.assembler.usage for each in self.generations]
        # The first generation of each prompt tells what the prompt cost.
        of_prompts = {
            id(each.request.prompt): usage for each, usage in reversed([*zip(self.generations, usages, strict=True)])
        }
        prompts = of_prompts.values()
        cached = [usage.cached_tokens for usage in prompts if usage.cached_tokens is not None]
        known = [usage.predicted for usage in usages if usage.predicted is not None]
        return Usage(
            sum(usage.prompt_tokens for usage in prompts),
            sum(usage.completion_tokens for usage in usages),
            sum(cached) if len(cached) == len(prompts) else None,
            Predicted(*map(sum, zip(*known, strict=True))) if len(known) == len(usages) else None,
            any(usage.estimated for usage in usages),
        )
