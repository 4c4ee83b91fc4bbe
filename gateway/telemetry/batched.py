"""Observations of a histogram at the price of a list's append, for what happens once a token."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter

from prometheus_client import Histogram

_MOST = 256  # observations that a scrape may miss


class BatchedHistogram:
    """Collects observations for one child of a histogram and hands them over together.

    ``Histogram.observe`` takes a lock and walks over the buckets: microseconds, as much as the rest of a token's way.
    """

    __slots__ = ("_child", "_waiting")

    def __init__(self, child: Histogram) -> None:
        """Collect for ``child``, a histogram whose labels are set."""
        self._child = child
        self._waiting: list[float] = []

    def observe(self, value: float, times: int = 1) -> None:
        """Take one observation, or several of the same value."""
        if times == 1:
            self._waiting.append(value)
        else:
            self._waiting += [value] * times
        if len(self._waiting) >= _MOST:
            self.flush()

    def flush(self) -> None:
        """Hand over what was collected."""
        if not self._waiting:
            return
        child = self._child
        bounds: list[float] = child._upper_bounds  # noqa: SLF001 - prometheus_client has no call for many at once
        counts = Counter([bisect_left(bounds, value) for value in self._waiting])
        for index, count in counts.items():
            child._buckets[index].inc(count)  # noqa: SLF001 - as above
        child._sum.inc(sum(self._waiting))  # noqa: SLF001 - as above
        self._waiting.clear()
