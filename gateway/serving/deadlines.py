"""When a generation is given up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds a generation may take, counted from the arrival of its request.

    Attributes:
        first_token_s: to the engine's first response; of a generation that had to wait for others of its answer, from
            its own beginning.
        total_s: to the end of the answer.
    """

    first_token_s: float
    total_s: float


class DeadlineTimer:
    """Watches both deadlines of one generation by one timer: most answers begin in time, and none is set for nothing.

    Args:
        deadlines: to keep.
        elapsed: seconds that have passed since the request arrived.
        waited: those of them that do not count for the first response.
        responded: tells whether it came.
        expire: called once with one sentence, when a deadline has passed.
    """

    __slots__ = ("_deadlines", "_end", "_expire", "_loop", "_responded", "_timer")

    def __init__(
        self,
        deadlines: Deadlines,
        *,
        elapsed: float,
        waited: float,
        responded: Callable[[], bool],
        expire: Callable[[str], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._deadlines = deadlines
        self._responded = responded
        self._expire = expire
        now = self._loop.time()
        self._end = now + max(0.0, deadlines.total_s - elapsed)
        first = now + max(0.0, deadlines.first_token_s - elapsed + waited)
        self._timer = self._loop.call_at(min(first, self._end), self._on_time, first)

    def stop(self) -> None:
        """Watch no more."""
        self._timer.cancel()

    def _on_time(self, first: float) -> None:
        if first <= self._end and not self._responded():
            self._expire(f"The model did not answer within {self._deadlines.first_token_s:g} seconds.")
        elif first < self._end:
            self._timer = self._loop.call_at(self._end, self._on_time, self._end)
        else:
            self._expire(f"The model did not finish its answer within {self._deadlines.total_s:g} seconds.")
