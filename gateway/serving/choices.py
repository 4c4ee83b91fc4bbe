"""Several generations as one answer: pieces as they come, each with its choice, and one usage over all."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType

from gateway.generation import EngineError, Piece, Predicted, Usage
from gateway.serving.pieces import Forward
from gateway.serving.running import RunningGeneration, leave

Ready = list[tuple[int, list[Piece], bool]]
"""By choice: its index, new pieces, and whether it is complete with them."""


class Choices:
    """An asynchronous context manager around the generations of one answer; leaving it early cancels all of them.

    A single generation costs no more than by itself. Of several, ``at_once`` run together, so that one answer does not
    fill the engine's queue, and the next begins when one was taken to its end. Each waits with a bounded number of
    pieces until they are taken; the failure of one is the failure of all.

    Attributes:
        generations: one for each choice, in order.
    """

    def __init__(self, generations: Sequence[RunningGeneration]) -> None:
        """Take generations whose contexts were not entered; at least one."""
        self.generations = tuple(generations)
        self._changed = asyncio.Event()
        self._open = set(range(len(self.generations)))
        self._running: set[int] = set()
        self._begun = 0
        # The first generation of each prompt: they tell what the prompts cost.
        self._prompts = list({id(each.request.prompt): each for each in reversed(self.generations)}.values())

    async def __aenter__(self) -> Choices:
        if len(self.generations) > 1:
            for generation in self.generations:
                generation.on_change = self._changed.set
        await self._begin()
        return self

    async def _begin(self) -> None:
        """Begin the generations whose turn it is."""
        while self._begun < len(self.generations) and len(self._running) < self.generations[self._begun].at_once:
            generation = self.generations[self._begun]
            self._running.add(self._begun)
            self._begun += 1
            if self._begun > len(self._running):  # others were first
                generation.queue_behind()
            await generation.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await leave(self.generations[: self._begun])

    async def responded(self, timeout: float | None = None) -> bool:
        """Wait for the first response of any generation, at most ``timeout`` seconds; whether it came.

        Raises:
            EngineError: when a generation failed before any responded, or a deadline passed.
        """
        if len(self.generations) == 1:
            return await self.generations[0].responded(timeout)
        while True:
            self._changed.clear()
            begun = self.generations[: self._begun]
            if any(generation.has_responded for generation in begun):
                return True
            for generation in begun:
                await generation.poll()  # raises where one failed
            if not await self._wait(timeout):
                return False

    async def ready(self, timeout: float | None = None, forward: Forward | None = None) -> Ready | None:
        """Wait for text; returns all that is ready, nothing after ``timeout`` seconds of silence, None at the end.

        Args:
            timeout: seconds of silence after which to return; None waits for ever.
            forward: of a single generation, takes pieces in the meantime; see ``RunningGeneration.pieces``.

        Raises:
            EngineError: when a generation failed or a deadline passed; of that generation all pieces were returned.
        """
        if len(self.generations) == 1:
            return await self._single(timeout, forward)
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
                    self._running.remove(index)
                if pieces is None or pieces:
                    found.append((index, pieces or [], pieces is None))
            await self._begin()
            if found:
                return found
            if not await self._wait(timeout):
                return []
        return None

    async def _single(self, timeout: float | None, forward: Forward | None) -> Ready | None:
        if not self._open:
            return None
        pieces = await self.generations[0].pieces(timeout, forward)
        if pieces is None:
            self._open.clear()
            return [(0, [], True)]
        return [(0, pieces, False)] if pieces else []

    async def _wait(self, timeout: float | None) -> bool:
        # Not wait_for: before Python 3.12 it swallows a cancellation that comes together with the event.
        waiting = asyncio.ensure_future(self._changed.wait())
        try:
            await asyncio.wait((waiting,), timeout=timeout)
        finally:
            waiting.cancel()
        return self._changed.is_set()

    @property
    def done(self) -> bool:
        """Whether everything of every choice was returned."""
        return not self._open

    @property
    def ttft_s(self) -> float | None:
        """Seconds from the request's arrival to the first token of any choice."""
        return min((each.ttft_s for each in self.generations if each.ttft_s is not None), default=None)

    @property
    def finish_reasons(self) -> tuple[str, ...]:
        """Why each choice ended; valid at the end."""
        return tuple(each.assembler.finish_reason for each in self.generations)

    def usage(self) -> Usage:
        """Token counts so far over all choices; each prompt counts once, however many choices share it.

        ``cached_tokens`` are those of the first choice of each prompt, None where an engine told none; ``predicted``
        counts what each choice took over of the same prediction.
        """
        if len(self.generations) == 1:
            return self.generations[0].assembler.usage
        prompts = [each.assembler.usage for each in self._prompts]
        cached = [usage.cached_tokens for usage in prompts if usage.cached_tokens is not None]
        usages = [each.assembler.usage for each in self.generations]
        known = [usage.predicted for usage in usages if usage.predicted is not None]
        return Usage(
            sum(usage.prompt_tokens for usage in prompts),
            sum(usage.completion_tokens for usage in usages),
            sum(cached) if len(cached) == len(prompts) else None,
            Predicted(*map(sum, zip(*known, strict=True))) if len(known) == len(usages) else None,
        )
