"""Limits how often something is done: once in a number of seconds."""

from __future__ import annotations

import math
import time


class Cooldown:
    """The time since something was last done; the first call of ``due`` is true.

    Args:
        seconds: shortest time from one to the next.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._next = -math.inf

    def due(self) -> bool:
        """Tell whether the time has passed, and begin it again if it has."""
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + self._seconds
        return True
