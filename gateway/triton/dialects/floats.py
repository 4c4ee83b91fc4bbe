"""Floating numbers from one type of the wire to another."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FLOATS = frozenset({"FP16", "BF16", "FP32"})
"""Types that numbers may be converted between."""

_NUMPY = {"FP16": "<f2", "BF16": "<u2", "FP32": "<f4"}


def convert(raw: bytes, source: str, target: str) -> bytes | None:
    """Convert numbers to another floating type, to the nearest that it has.

    Args:
        raw: finite numbers, packed with little endian.
        source: their type, one of ``FLOATS``; a BF16 is the upper half of an FP32.
        target: the type to convert to.

    Returns:
        The same numbers, packed with ``target``; None where one of them is too large for it.
    """
    numbers = np.frombuffer(raw, _NUMPY[source])
    wide: NDArray[np.float32] = _widened(numbers) if source == "BF16" else numbers.astype("<f4")
    if target == "BF16":
        return _to_bf16(wide)
    with np.errstate(over="ignore"):
        narrow = wide.astype(_NUMPY[target])
    return narrow.tobytes() if np.isfinite(narrow).all() else None


def _widened(halves: NDArray[np.uint16]) -> NDArray[np.float32]:
    return (halves.astype("<u4") << 16).view("<f4")


def _to_bf16(wide: NDArray[np.float32]) -> bytes | None:
    """Round to the nearest, to an even last bit where two are as near."""
    bits = wide.view("<u4")
    halves = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")
    return halves.tobytes() if np.isfinite(_widened(halves)).all() else None
