"""Percentiles of durations, in bounded memory."""

from __future__ import annotations

import math
from collections import Counter

_STEP = math.log(1.01)  # a bucket is one percent wide
_LEAST_S = 1e-6
PERCENTILES = (50, 90, 95, 99)


class Durations:
    """Percentiles of any number of durations, exact within 1 %."""

    def __init__(self) -> None:
        self._buckets: Counter[int] = Counter()
        self._total = 0.0
        self.count = 0
        self.longest = 0.0

    def add(self, seconds: float) -> None:
        """Add a duration in seconds; takes less than a microsecond."""
        self._buckets[int(math.log(max(seconds, _LEAST_S) / _LEAST_S) / _STEP)] += 1
        self._total += seconds
        self.count += 1
        self.longest = max(self.longest, seconds)

    def percentile(self, share: float) -> float | None:
        """The duration that ``share`` percent do not exceed; None without durations."""
        wanted = math.ceil(self.count * share / 100)
        seen = 0
        for bucket in sorted(self._buckets):
            seen += self._buckets[bucket]
            if seen >= wanted:
                return min(_LEAST_S * math.exp((bucket + 0.5) * _STEP), self.longest)
        return None

    @property
    def mean(self) -> float:
        """The mean in seconds; 0 without durations."""
        return self._total / self.count if self.count else 0.0

    def as_json(self) -> dict[str, float | None]:
        """Milliseconds: mean, percentiles and the longest; None without durations."""
        percentiles = {f"p{share}": self.percentile(share) for share in PERCENTILES}
        mean, longest = (self.mean, self.longest) if self.count else (None, None)
        values = {"mean": mean, **percentiles, "max": longest}
        return {name: None if seconds is None else round(seconds * 1000, 3) for name, seconds in values.items()}
