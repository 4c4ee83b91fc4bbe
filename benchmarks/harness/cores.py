"""The division of the cores between the gateway and the processes that load it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator
from pathlib import Path

_CPU = Path("/sys/devices/system/cpu")


def split(share: float = 0.5) -> tuple[list[int], list[int]]:
    """Give a share of the cores, half of them by default, to the gateway, the others to load and synthetic Triton.

    The two threads of a physical core stay together. Both are the same where there is one core only.
    """
    cores = sorted(os.sched_getaffinity(0), key=lambda core: (*_place(core), core))
    gateway = max(1, int(len(cores) * share))
    return cores[:gateway], cores[gateway:] or cores


def _place(core: int) -> tuple[int, int]:
    topology = _CPU / f"cpu{core}" / "topology"
    try:
        return int((topology / "physical_package_id").read_text()), int((topology / "core_id").read_text())
    except FileNotFoundError:
        return 0, core


@contextlib.contextmanager
def on(cores: Collection[int]) -> Iterator[None]:
    """Run the calling thread, and processes that are started within, on these cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
