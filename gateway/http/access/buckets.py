"""The arithmetic of token buckets, whose level is negative after more was used than reserved."""

from __future__ import annotations

from dataclasses import dataclass

MINUTE_S = 60.0
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class Level:
    """The level of a token bucket.

    Attributes:
        limit: refill of one minute, and the highest level.
        left: the level, below 0 after more was used than reserved.
    """

    limit: int
    left: float

    @property
    def reset_s(self) -> float:
        """Seconds until the bucket is full."""
        return max(0.0, (self.limit - self.left) * MINUTE_S / self.limit)

    def allows(self, cost: float) -> bool:
        """Tell whether the bucket has enough for ``cost``."""
        return self.left >= cost - _ROUNDING

    def wait_s(self, cost: float) -> float:
        """Seconds until the bucket has enough for ``cost``."""
        return max(0.0, (cost - self.left) * MINUTE_S / self.limit)


def refilled(remaining: float, elapsed_s: float, limit: int) -> float:
    """Compute the level after seconds without use."""
    return min(float(limit), remaining + max(0.0, elapsed_s) * limit / MINUTE_S)
