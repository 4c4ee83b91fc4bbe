"""Memory that the processes of one gateway share, or that one process uses alone.

The memory is an anonymous file that processes inherit. It is freed when the last of them ends, even if killed, and the
kernel releases a dead process's locks on its bytes. ``multiprocessing.shared_memory`` is not used: its named segments
outlive a killed supervisor, and ``/dev/shm`` has only 64 MiB in a container.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import mmap
import os
import time
from collections.abc import Iterator
from functools import lru_cache


class SharedMemory:
    """Memory of this process, shared or not.

    Args:
        size: in bytes.
        descriptor: descriptor of the file that several processes map; None for one process.

    Attributes:
        data: its bytes, 0 at first.
    """

    def __init__(self, size: int, descriptor: int | None = None) -> None:
        self.data = mmap.mmap(-1 if descriptor is None else descriptor, size)
        self._descriptor = descriptor

    @contextlib.contextmanager
    def locked(self, place: int, patience_s: float) -> Iterator[bool]:
        """Hold the lock with a number, if it is free in time; yields whether it is held."""
        held = self._descriptor is None or self._lock(self._descriptor, place, patience_s)
        try:
            yield held
        finally:
            if held and self._descriptor is not None:
                fcntl.lockf(self._descriptor, fcntl.LOCK_UN, 1, place)

    def _lock(self, descriptor: int, place: int, patience_s: float) -> bool:
        until = None
        while not self._try(descriptor, place):
            now = time.monotonic()
            until = until or now + patience_s
            if now > until:
                return False
            time.sleep(0)
        return True

    @staticmethod
    def _try(descriptor: int, place: int) -> bool:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
        except OSError:
            return False
        return True


def create_memory(size: int) -> int:
    """Make the memory that processes share, of ``size`` bytes; returns the file descriptor to inherit."""
    descriptor = os.memfd_create("gateway")
    os.truncate(descriptor, size)
    return descriptor


@lru_cache(maxsize=4096)
def key_of(*names: str) -> int:
    """Make a key from names: 63 bits, above 1, as tables use 0 and 1 for entries without a name."""
    digest = hashlib.blake2b("\n".join(names).encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1 or 2
