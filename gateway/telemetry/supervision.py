"""Restarts of tasks that must not end, after pauses."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

_log = logging.getLogger(__name__)


class RestartPause:
    """The pauses before restarts of a task or process: each is twice the one before, up to a longest one.

    Args:
        first_s: seconds of the first pause.
        longest_s: seconds of the longest pause; after a run that took longer, pauses begin with the first again.
    """

    def __init__(self, first_s: float = 0.5, longest_s: float = 30.0) -> None:
        self._first_s, self._longest_s, self._next_s = first_s, longest_s, first_s
        self._begun = time.monotonic()

    def next_s(self) -> float:
        """Return the seconds of the pause that begins now."""
        now = time.monotonic()
        pause = self._first_s if now - self._begun > self._longest_s else self._next_s
        self._begun, self._next_s = now + pause, min(2 * pause, self._longest_s)
        return pause


async def keep_running(what: str, work: Callable[[], Awaitable[None]]) -> None:
    """Run ``work`` until it returns or is cancelled; an exception is logged, and the work begins again.

    Args:
        what: name of the work, for the log.
        work: starts the work, at each call from the beginning.
    """
    pauses = RestartPause()
    while True:
        try:
            return await work()
        except Exception as defect:  # noqa: BLE001 - a defect, whatever it is: what it looks after must not go without
            pause = pauses.next_s()
            _log.error(
                "%s failed and restarts in %g s", what, pause, exc_info=defect, extra={"event": "task_restarted"}
            )
        await asyncio.sleep(pause)


async def end_tasks(*tasks: asyncio.Task[None] | None) -> None:
    """Cancel tasks, and wait for their end."""
    begun = [task for task in tasks if task is not None]
    for task in begun:
        task.cancel()
    await asyncio.gather(*begun, return_exceptions=True)
