"""Bounds the memory of this process.

Large work waits at the soft limit, and every new request is rejected at the hard limit. Running requests continue: they
hold memory already, and free it at their end.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import AsyncIterator
from typing import Final

from gateway.generation import EngineError, ErrorKind
from gateway.settings import MemorySettings
from gateway.telemetry.cooldown import Cooldown
from gateway.telemetry.memory import Memory, MemoryReading, MemoryState, give_back
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.supervision import keep_running

_log = logging.getLogger(__name__)
_SAMPLE_S: Final = 0.25
_BACK_BELOW: Final = 0.97  # of a limit, before its state is left: not back and forth at its edge
_MOST_SHARE: Final = 1.0  # a larger limit counts bytes

_RANK: Final[dict[MemoryState, int]] = {"normal": 0, "soft": 1, "hard": 2}


class Overload:
    """Decides whether a request may take memory; one object for the process.

    Attributes:
        state: state by the last sample.
        rejected: requests that were rejected since the last sample.
    """

    def __init__(self) -> None:
        self.state: MemoryState = "normal"
        self.rejected = 0
        self._settings = MemorySettings()
        self._waiting: set[asyncio.Future[None]] = set()
        self._returns = Cooldown(2.0)  # of free memory to the system

    def check(self) -> None:
        """Reject a new request beyond the hard limit.

        Raises:
            EngineError: UNAVAILABLE beyond the hard limit.
        """
        if self.state == "hard":
            raise self._refusal()

    async def room(self) -> None:
        """Wait until memory is below the soft limit.

        Raises:
            EngineError: UNAVAILABLE beyond the hard limit, or while memory stays above the soft limit for ``wait_s``.
        """
        self.check()
        if self.state == "normal":
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.add(waiter)
        try:
            await asyncio.wait((waiter,), timeout=self._settings.wait_s)
        finally:
            self._waiting.discard(waiter)
        if not waiter.done():
            raise self._refusal()
        self.check()

    @contextlib.asynccontextmanager
    async def watch(self, settings: MemorySettings, memory: Memory, metrics: Metrics) -> AsyncIterator[None]:
        """Follow the memory while the context is open.

        Args:
            settings: the limits.
            memory: reads the used memory.
            metrics: where each sample is noted.
        """
        self._settings = settings
        follow = functools.partial(self._follow, memory, metrics)
        task = asyncio.create_task(keep_running("the memory watcher", follow))
        try:
            yield
        finally:
            task.cancel()
            self._enter("normal")

    async def _follow(self, memory: Memory, metrics: Metrics) -> None:
        while True:
            reading = await asyncio.to_thread(memory.read)  # dozens of calls, after each of which it waits for the GIL
            state = self._judge(reading)
            if state != self.state:
                level = logging.INFO if state == "normal" else logging.WARNING
                said = {
                    "event": "memory_state",
                    "state": state,
                    "bytes": reading.own,
                    "limit": reading.limit,
                    "share": round(reading.share, 3),
                }
                _log.log(level, "memory: %s", _SAYS[state], extra=said)
                self._enter(state)
            metrics.note_memory(state, reading, self.rejected)
            self.rejected = 0
            if state != "normal" and self._returns.due():
                await asyncio.to_thread(give_back)  # otherwise freed memory would count as used
            await asyncio.sleep(_SAMPLE_S)

    def _judge(self, reading: MemoryReading) -> MemoryState:
        limits: tuple[tuple[MemoryState, float], ...] = (("hard", self._settings.hard), ("soft", self._settings.soft))
        for state, limit in limits:
            used = reading.share if limit <= _MOST_SHARE else reading.together
            if limit and used >= limit * (_BACK_BELOW if _RANK[self.state] >= _RANK[state] else 1.0):
                return state
        return "normal"

    def _enter(self, state: MemoryState) -> None:
        self.state = state
        if state != "soft":  # requests continue, or are rejected
            for waiter in self._waiting:
                waiter.set_result(None)
            self._waiting.clear()

    def _refusal(self) -> EngineError:
        self.rejected += 1
        return EngineError(ErrorKind.UNAVAILABLE, "The gateway is short of memory; try again in a moment.")


_SAYS: Final[dict[MemoryState, str]] = {
    "normal": "below the soft limit again",
    "soft": "above the soft limit: large bodies and long prompts wait",
    "hard": "above the hard limit: new requests are rejected with 503",
}

OVERLOAD: Final = Overload()
"""Of this process."""
