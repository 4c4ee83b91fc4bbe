"""Runs the generations of one answer together: each piece has the index of its choice, and usage is a sum."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Protocol

from gateway.generation import EngineError, Usage
from gateway.generation.relay.interface import Forward
from gateway.serving.generation import Generation, Ready, cancel_all


class Generations(Protocol):
    """All generations of one answer, as a context; leaving it early cancels them.

    Attributes:
        complete: whether the engine has ended and the answer is complete; false for several generations.
        done: whether all of every choice was returned.
    """

    complete: bool
    done: bool

    @property
    def ttft_s(self) -> float | None:
        """Seconds from the request's arrival to the first token of any choice."""
        ...

    @property
    def address(self) -> str:
        """The endpoints that respond, where there are several; else empty."""
        ...

    async def __aenter__(self) -> Generations: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def wait_for_response(self, timeout: float | None = None) -> bool:
        """Wait for the first response of any generation for some seconds; returns whether it came.

        Raises:
            EngineError: when a generation failed before any responded, or a deadline passed.
        """
        ...

    async def ready(self, timeout: float | None = None, forward: Forward | None = None) -> Ready | None:
        """Wait for output; returns all that is ready, nothing after some seconds of silence, None at the end.

        Args:
            timeout: seconds of silence after which to return; None waits for ever.
            forward: of a single generation, takes pieces in the meantime; see ``Generation.ready``.

        Raises:
            EngineError: when a generation failed or a deadline passed; of that generation all pieces were returned.
        """
        ...

    def usage(self) -> Usage:
        """Count tokens so far over all choices."""
        ...


def together(generations: Sequence[Generation]) -> Generations:
    """Combine the generations of one answer, which do not run yet; a single one stays alone."""
    return generations[0] if len(generations) == 1 else GenerationGroup(generations)


class GenerationGroup:
    """Several generations of one answer; see ``Generations``.

    ``max_parallel`` run at a time, so that one answer does not fill the engine's queue; the next one starts when all
    pieces of another were taken. Each holds a bounded number of pieces; the failure of one is the failure of all.

    Attributes:
        generations: one for each choice, in order.
        complete: see ``Generations``.
        done: see ``Generations``.
    """

    def __init__(self, generations: Sequence[Generation]) -> None:
        """Take generations that were not started."""
        self.generations = tuple(generations)
        self.complete = self.done = False
        self._changed = asyncio.Event()
        self._open = set(range(len(self.generations)))
        self._running: set[int] = set()
        self._started = 0

    async def __aenter__(self) -> GenerationGroup:
        for generation in self.generations:
            generation.notify(self._changed.set)
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

    async def wait_for_response(self, timeout: float | None = None) -> bool:
        """See ``Generations``."""
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
        """See ``Generations``."""
        del forward  # of several, each event is for one of them
        while self._open:
            self._changed.clear()
            found: Ready = []
            for index in sorted(self._running):
                try:
                    pieces = await self.generations[index].poll()
                except EngineError:
                    if found:
                        return found  # the next call raises the error
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
        """See ``Generations``."""
        return min((each.ttft_s for each in self.generations if each.ttft_s is not None), default=None)

    @property
    def address(self) -> str:
        """See ``Generations``."""
        return ",".join(sorted({each.address for each in self.generations})).strip(",")

    def usage(self) -> Usage:
        """Count tokens so far over all choices; each prompt counts once.

        ``cached_tokens`` are those of the first choice of each prompt, None where an engine reports none; ``predicted``
        counts what each choice took over of the same prediction.
        """
        usages = [each.assembler.usage for each in self.generations]
        # The first generation of each prompt tells what the prompt cost.
        of_prompts = {
            id(each.request.prompt): usage for each, usage in reversed([*zip(self.generations, usages, strict=True)])
        }
        return Usage.of_all(of_prompts.values(), usages)
