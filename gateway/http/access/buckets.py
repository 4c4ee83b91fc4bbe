"""The arithmetic of a token bucket whose level may be negative: what was promised is settled by what was used."""

from __future__ import annotations

from dataclasses import dataclass

MINUTE_S = 60.0
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class Level:
    """What is left of a limit.

    Attributes:
        limit: what one minute gives, and the most that is left.
        left: of it now, below 0 where more was used than promised.
    """

    limit: int
    left: float

    @property
    def reset_s(self) -> float:
        """Seconds until all of it is there again."""
        return max(0.0, (self.limit - self.left) * MINUTE_S / self.limit)

    def allows(self, cost: float) -> bool:
        """Whether ``cost`` can be taken now."""
        return self.left >= cost - _ROUNDING

    def wait_s(self, cost: float) -> float:
        """Seconds until ``cost`` can be taken; 0 where it can be now."""
        return max(0.0, (cost - self.left) * MINUTE_S / self.limit)


def refilled(left: float, elapsed_s: float, limit: int) -> float:
    """What is left after a while in which nothing was taken."""
    return min(float(limit), left + max(0.0, elapsed_s) * limit / MINUTE_S)
