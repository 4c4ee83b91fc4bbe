"""A circuit breaker: stops requests to an endpoint after failures in a row. Pure."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

BreakerState = Literal["closed", "open", "half_open"]
"""States: it takes requests; it takes none; it takes one at a time, to try."""


@dataclass(frozen=True, slots=True)
class BreakerLimits:
    """The limits of a circuit breaker.

    Attributes:
        failures: requests in a row that must fail before it opens.
        open_s: seconds for which it stays open the first time; each further time in a row is twice as long.
        longest_s: seconds for which it stays open at most.
    """

    failures: int = 5
    open_s: float = 5.0
    longest_s: float = 60.0


class Breaker:
    """Counts failures in a row.

    A failure is an unreachable endpoint, or a missing response. A rejected request, a full queue and a cancel do not
    count.

    Args:
        limits: limits of the breaker.
        clock: returns seconds.
    """

    def __init__(self, limits: BreakerLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._failures = 0
        self._openings = 0
        self._until = -math.inf
        self._opened = False
        self._trying = False

    @property
    def state(self) -> BreakerState:
        """The breaker's state."""
        if not self._opened:
            return "closed"
        return "open" if self._clock() < self._until else "half_open"

    @property
    def open_for_s(self) -> float:
        """Seconds until the endpoint takes a request again; 0 where it takes requests."""
        return max(0.0, self._until - self._clock()) if self._opened else 0.0

    @property
    def takes(self) -> bool:
        """Tell whether a request may be sent now."""
        state = self.state
        return state == "closed" or (state == "half_open" and not self._trying)

    def sent(self) -> None:
        """Note that a request is sent; an endpoint that may have recovered gets one at a time."""
        self._trying = self._opened

    def succeeded(self) -> None:
        """Note that a request had a response."""
        self._failures = self._openings = 0
        self._opened = self._trying = False

    def failed(self) -> None:
        """Note that a request failed by the endpoint's fault."""
        self._failures += 1
        tried, self._trying = self._trying, False
        if tried or (not self._opened and self._failures >= self._limits.failures):
            self._open()

    def unsaid(self) -> None:
        """Note that a request ended without a sign of the endpoint's health, such as when its client left."""
        self._trying = False

    def _open(self) -> None:
        self._opened = True
        pause = min(self._limits.open_s * 2**self._openings, self._limits.longest_s)
        self._openings = min(self._openings + 1, 32)
        self._until = self._clock() + pause
