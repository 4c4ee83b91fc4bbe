"""Nested objects and arrays of JSON, a level at a time.

The loops are the interpreter's own: a request of an agent repeats some thousand keys and values of its tools at each
turn, and to look at each in a loop of ours takes ten times as long.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from itertools import chain, compress, repeat
from typing import Any


def texts(level: Sequence[Any]) -> list[str]:
    """The strings among values."""
    return [*chain.from_iterable([_of(level, kind) for kind in set(map(type, level)) if issubclass(kind, str)])]


def whole_numbers(level: Sequence[Any]) -> list[int]:
    """The integers among values."""
    return _of(level, int)


def inside(level: Sequence[Any]) -> list[Any]:
    """All keys and values of the objects, and the values of the arrays, among values."""
    found: list[Any] = []
    for kind in set(map(type, level)):
        if issubclass(kind, Mapping):
            objects = _of(level, kind)
            found += chain.from_iterable(objects)
            found += chain.from_iterable(map(kind.values, objects))
        elif issubclass(kind, list | tuple):
            found += chain.from_iterable(_of(level, kind))
    return found


def _of(level: Sequence[Any], kind: type) -> list[Any]:
    return [*compress(level, map(operator.is_, map(type, level), repeat(kind)))]
