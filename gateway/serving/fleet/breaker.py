"""A circuit breaker: whether an endpoint is given requests, judged by how the last ones ended. Pure."""

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
    """When a breaker opens, and for how long.

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

    Only what an endpoint is to blame for is a failure: it could not be reached, or gave no response in time. A rejected
    request, a full queue and a cancel do not count.

    Args:
        limits: when it opens.
        clock: in seconds.
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
        """Whether it takes requests now."""
        if not self._opened:
            return "closed"
        return "open" if self._clock() < self._until else "half_open"

    @property
    def open_for_s(self) -> float:
        """Seconds until it takes a request again; 0 where it takes them."""
        return max(0.0, self._until - self._clock()) if self._opened else 0.0

    @property
    def takes(self) -> bool:
        """Whether a request may be sent now."""
        state = self.state
        return state == "closed" or (state == "half_open" and not self._trying)

    def sent(self) -> None:
        """Note that a request is sent; of those that try whether it is well again there is one at a time."""
        self._trying = self._opened

    def succeeded(self) -> None:
        """Note that a request had a response: the endpoint is well."""
        self._failures = self._openings = 0
        self._opened = self._trying = False

    def failed(self) -> None:
        """Note that a request failed, and the endpoint is to blame."""
        self._failures += 1
        tried, self._trying = self._trying, False
        if tried or (not self._opened and self._failures >= self._limits.failures):
            self._open()

    def unsaid(self) -> None:
        """Note that a request ended in a way that says nothing of the endpoint, such as its client's leaving."""
        self._trying = False

    def _open(self) -> None:
        self._opened = True
        pause = min(self._limits.open_s * 2**self._openings, self._limits.longest_s)
        self._openings = min(self._openings + 1, 32)
        self._until = self._clock() + pause
