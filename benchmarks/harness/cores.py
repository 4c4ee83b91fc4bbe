"""Which cores a measurement gives to the gateway, and which to all that loads it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator
from pathlib import Path

_CPU = Path("/sys/devices/system/cpu")


def split() -> tuple[list[int], list[int]]:
    """Half of the cores for the gateway, the others for load and synthetic Triton.

    The two threads of a physical core stay together. Both are the same where there is one core only.
    """
    cores = sorted(os.sched_getaffinity(0), key=lambda core: (*_place(core), core))
    gateway = max(1, len(cores) // 2)
    return cores[:gateway], cores[gateway:] or cores


def _place(core: int) -> tuple[int, int]:
    topology = _CPU / f"cpu{core}" / "topology"
    try:
        return int((topology / "physical_package_id").read_text()), int((topology / "core_id").read_text())
    except FileNotFoundError:
        return 0, core


@contextlib.contextmanager
def on(cores: Collection[int]) -> Iterator[None]:
    """Processes that are started within run on these cores, and so does the calling thread."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
