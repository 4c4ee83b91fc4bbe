"""What ``make test`` takes of what ``make test-long`` runs as a whole."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest


class _Run:
    """The run that this process is part of; `tests.conftest` tells which one it is before tests are imported."""

    short = False


def begin(*, short: bool) -> None:
    """Say whether the tests that are marked as long are left out."""
    _Run.short = short


def examples(count: int, short: int | None = None, *, long: int | None = None) -> int:
    """The examples that a property test takes: short runs ``short`` or a third of ``count``, others ``long`` or all."""
    return (short or -(-count // 3)) if _Run.short else long or count


def one_in(step: int, values: Sequence[Any], ids: Sequence[str], of: Callable[[Any], str]) -> list[Any]:
    """Parameters of which a short run takes every ``step``-th, and the long one the others too: many are much alike.

    Args:
        step: how many there are to one that is taken.
        values: the parameters.
        ids: their names.
        of: the group of one; the first of each group is taken.
    """
    places = {group: itertools.count() for group in map(of, values)}
    return [
        pytest.param(value, id=name, marks=pytest.mark.long if next(places[of(value)]) % step else ())
        for value, name in zip(values, ids, strict=True)
    ]
