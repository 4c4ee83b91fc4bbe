"""Nested objects and arrays of JSON, a level at a time.

The loops are the interpreter's own: a request of an agent repeats some thousand keys and values of its tools at each
turn, and to look at each in a loop of ours takes ten times as long. Other threads must wait for such a loop, so that
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
    found: list[str] = []
    for kind, some in _by_kind(level):
        if issubclass(kind, str):
            found += some
    return found


def whole_numbers(level: Sequence[Any]) -> list[int]:
    """The integers among values."""
    found: list[int] = []
    for kind, some in _by_kind(level):
        if kind is int:
            found += some
    return found


def inside(level: Sequence[Any]) -> list[Any]:
    """All keys and values of the objects, and the values of the arrays, among values."""
    found: list[Any] = []
    for kind, some in _by_kind(level):
        if issubclass(kind, Mapping):
            found += chain.from_iterable(some)
            found += chain.from_iterable(map(kind.values, some))
        elif issubclass(kind, list | tuple):
            found += chain.from_iterable(some)
    return found


def _by_kind(level: Sequence[Any]) -> Iterator[tuple[type, list[Any]]]:
    """Values by their type, some at a time."""
    for start in range(0, len(level), _SOME):
        some = level[start : start + _SOME]
        for kind in set(map(type, some)):
            yield kind, [*compress(some, map(operator.is_, map(type, some), repeat(kind)))]
