"""The gateway with a clock in its event loop: ``python -m benchmarks.harness.lag_probe SETTINGS``.

``GET /lag`` answers, and forgets, the longest time that the loop was late since the last question, in milliseconds.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import uvloop

from .probe import serve

_TICK_S = 0.001


class Probe:
    """A task that wakes every millisecond and notes its delay."""

    def __init__(self) -> None:
        self._worst = 0.0

    async def watch(self) -> None:
        """Run for ever."""
        while True:
            due = time.perf_counter() + _TICK_S
            await asyncio.sleep(_TICK_S)
            self._worst = max(self._worst, time.perf_counter() - due)

    async def answer(self) -> dict[str, float]:
        """Return the figures once."""
        worst, self._worst = self._worst, 0.0
        return {"worst_ms": round(worst * 1000, 2)}


async def main(file: Path) -> None:
    """Serve until SIGTERM."""
    probe = Probe()
    task = asyncio.create_task(probe.watch())
    await serve(file, "/lag", probe.answer)
    task.cancel()


if __name__ == "__main__":
    uvloop.run(main(Path(sys.argv[1])))
