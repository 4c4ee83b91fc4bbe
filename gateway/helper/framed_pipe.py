"""Questions and answers on a pipe: the length of each in eight bytes, then its bytes."""

from __future__ import annotations

import struct
from typing import IO

_HEAD = struct.Struct("<Q")


def write_frame(pipe: IO[bytes], *pieces: bytes) -> None:
    """Write a question or an answer to an unbuffered pipe.

    Args:
        pipe: to write to.
        pieces: of it, in order.

    Raises:
        OSError: the other end is closed.
    """
    for part in (_HEAD.pack(sum(map(len, pieces))), *pieces):
        rest = memoryview(part)
        while rest:
            rest = rest[pipe.write(rest) :]


def read_frame(pipe: IO[bytes], largest: int) -> bytearray | None:
    """Read a question or an answer from an unbuffered pipe; None where the pipe ends first.

    Args:
        pipe: to read.
        largest: bytes of it at most.

    Raises:
        OverflowError: it is larger.
        OSError: the pipe is closed.
    """
    head = _read(pipe, _HEAD.size)
    if head is None:
        return None
    (size,) = _HEAD.unpack(head)
    if size > largest:
        raise OverflowError
    return _read(pipe, size)


def _read(pipe: IO[bytes], size: int) -> bytearray | None:
    data = bytearray(size)
    rest = memoryview(data)
    while rest:
        count = pipe.readinto(rest)  # type: ignore[attr-defined]
        if not count:
            return None
        rest = rest[count:]
    return data
