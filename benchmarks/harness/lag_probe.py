"""The gateway with a clock in its event loop: ``python -m benchmarks.harness.lag_probe SETTINGS``.

``GET /lag`` answers, and forgets, the longest time that the loop was late since the last question, in milliseconds.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from .probe import serve

_TICK_S = 0.001


class Probe:
    """A task that wakes every millisecond and notes its delay; the first question starts it."""

    def __init__(self) -> None:
        self._worst = 0.0
        self._task: asyncio.Task[None] | None = None

    async def _watch(self) -> None:
        while True:
            due = time.perf_counter() + _TICK_S
            await asyncio.sleep(_TICK_S)
            self._worst = max(self._worst, time.perf_counter() - due)

    async def answer(self) -> dict[str, float]:
        """Return the figures once."""
        self._task = self._task or asyncio.create_task(self._watch())
        worst, self._worst = self._worst, 0.0
        return {"worst_ms": round(worst * 1000, 2)}


if __name__ == "__main__":
    serve(Path(sys.argv[1]), "/lag", Probe().answer)
