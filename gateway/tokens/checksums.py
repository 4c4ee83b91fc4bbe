"""Hashes that do not let go of the interpreter for moments.

hashlib and zlib let other threads run while they hash more than some kilobytes. A thread that waits takes longer to
wake up than a few kilobytes take to be hashed: by then the interpreter is taken again. As it was woken, it does not
insist either, which it would after its time of waiting (CPython's ``take_gil``). A loop that hashes every 50
microseconds so keeps the event loop waiting until it ends, for tens of milliseconds; one that never lets go gives way
after the switch interval.
"""

from __future__ import annotations

import hashlib
import zlib
from typing import Final

_HASHED_AT_ONCE: Final = 2047  # bytes: hashlib lets others run from 2048 on
_SUMMED_AT_ONCE: Final = 5120  # bytes: zlib does beyond them
_WORTH_A_SWITCH: Final = 262_144  # bytes, which take long enough for another thread to wake up


def update(hasher: hashlib.blake2b, data: bytes) -> None:
    """Hash ``data``, which is short or long."""
    if len(data) <= _HASHED_AT_ONCE or len(data) >= _WORTH_A_SWITCH:
        hasher.update(data)
        return
    for start in range(0, len(data), _HASHED_AT_ONCE):
        hasher.update(data[start : start + _HASHED_AT_ONCE])


def checksum(data: bytes) -> int:
    """The CRC-32 of ``data``, which is short or long."""
    if len(data) <= _SUMMED_AT_ONCE or len(data) >= _WORTH_A_SWITCH:
        return zlib.crc32(data)
    found = 0
    for start in range(0, len(data), _SUMMED_AT_ONCE):
        found = zlib.crc32(data[start : start + _SUMMED_AT_ONCE], found)
    return found
