"""The 99th percentile of the gaps between an engine's responses, from the long gaps only."""

from __future__ import annotations

import math

_SHARE = 0.01
_BUCKETS = 64
_GROWTH = 1.125  # width of a bucket, in widths of the one before; the last bucket begins above 1,600 floors
_WINDOW = 4096  # after this many responses, the weight of all earlier ones is halved
_LOG_GROWTH = math.log(_GROWTH)


class LongGaps:
    """Estimates the percentile in fixed memory, exact within an eighth, over the latest few thousand responses.

    Args:
        floor_s: seconds; shorter gaps are not added, so that they cost nothing.
        responses: number of earlier responses.
    """

    def __init__(self, floor_s: float, responses: int = 0) -> None:
        self._floor_s = floor_s
        self._counts = [0.0] * _BUCKETS
        self._responses = 0.0
        self._seen = responses

    def add(self, gap_s: float) -> None:
        """Add a gap that is longer than the floor."""
        bucket = int(math.log(gap_s / self._floor_s) / _LOG_GROWTH)
        self._counts[min(bucket, _BUCKETS - 1)] += 1

    def p99(self, responses: int) -> float:
        """The percentile in seconds, rounded up; 0 where it is below the floor.

        Args:
            responses: number of all responses, also after short gaps.
        """
        self._responses += responses - self._seen
        self._seen = responses
        while self._responses > _WINDOW:
            self._responses /= 2
            self._counts = [count / 2 for count in self._counts]
        longer = 0.0
        for bucket in reversed(range(_BUCKETS)):
            longer += self._counts[bucket]
            if longer > _SHARE * self._responses:
                return self._floor_s * float(_GROWTH ** (bucket + 1))
        return 0.0
