"""Nested objects and arrays of JSON, a level at a time.

The loops are the interpreter's own: a request of an agent repeats some thousand keys and values of its tools at each
turn, and to look at each in a Python loop takes ten times as long. Other threads must wait for such a loop, so that
each takes some thousand values only.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, compress, repeat
from typing import Any

_SOME = 4096  # values: a tenth of a millisecond


def texts(level: Sequence[Any]) -> list[str]:
    """The strings among values."""
    return [*chain.from_iterable(some for _, some in _by_kind(level, str))]


def whole_numbers(level: Sequence[Any]) -> list[int]:
    """The integers among values, and truths as 0 and 1."""
    return [*chain.from_iterable(some for _, some in _by_kind(level, int))]


def inside(level: Sequence[Any]) -> list[Any]:
    """All keys and values of the objects, and the values of the arrays, among values."""
    found: list[Any] = []
    for kind, some in _by_kind(level, Mapping, list, tuple):
        found += chain.from_iterable(some)
        if issubclass(kind, Mapping):
            found += chain.from_iterable(map(kind.values, some))
    return found


def _by_kind(level: Sequence[Any], *wanted: type) -> Iterator[tuple[type, list[Any]]]:
    """Values of the types that are wanted, some at a time, and those of one type together."""
    for start in range(0, len(level), _SOME):
        some = level[start : start + _SOME]
        for kind in set(map(type, some)):
            if issubclass(kind, wanted):
                yield kind, [*compress(some, map(operator.is_, map(type, some), repeat(kind)))]
