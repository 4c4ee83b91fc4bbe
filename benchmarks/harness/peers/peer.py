"""A gateway under measurement, with what its figures leave out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.harness.processes import Child


@dataclass(frozen=True)
class Peer:
    """A gateway that serves.

    Attributes:
        name: in tables.
        release: its version; empty for those of this repository.
        child: its process; the CPU of this one and of its descendants is counted.
        pace: sets the microseconds between the tokens of what it asks.
        upstream: what it asks.
        without: what it does not do here, and this gateway does.
        slow: whether it gets shorter answers than the others.
    """

    name: str
    release: str
    child: Child
    pace: Callable[[int], None]
    upstream: str
    without: str
    slow: bool = False
