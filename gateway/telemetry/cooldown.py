"""Says when something is due that is done once in a number of seconds at most."""

from __future__ import annotations

import math
import time


class Cooldown:
    """The time since something was last done; it is due at first.

    Args:
        seconds: from one time to the next, at least.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._next = -math.inf

    def due(self) -> bool:
        """Tell whether it is due, and count it as done."""
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + self._seconds
        return True
