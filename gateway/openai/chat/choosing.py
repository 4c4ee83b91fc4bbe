"""Which of several candidates are shown."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gateway.generation import TokenLogprob


def best(candidates: Sequence[Sequence[TokenLogprob]], n: int) -> list[int]:
    """The indices of the ``n`` candidates with the highest log-prob per token, best first; all in order when ``n`` are.

    One without tokens comes last: nothing tells how likely it is.

    Args:
        candidates: log-prob entries of each.
        n: how many to choose.
    """
    order = list(range(len(candidates)))
    if n < len(order):
        order.sort(key=lambda index: _mean(candidates[index]), reverse=True)
    return order[:n]


def _mean(entries: Sequence[TokenLogprob]) -> float:
    return sum(entry.logprob for entry in entries) / len(entries) if entries else -math.inf
