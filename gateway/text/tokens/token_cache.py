"""A cache of token ids of earlier prompts' parts, which all worker processes share in memory.

Entries go one after another into a ring, a new one over the oldest. An index of buckets leads to them; both are of a
fixed size. Readers take no lock: an entry says whose it is and has a checksum, so that one which is overwritten
meanwhile is not found. Writers of several processes exclude each other by a lock of the file, which ends with its
holder. A writer that finds the lock taken drops its entry, so that no writer waits for a process that hangs.
"""

from __future__ import annotations

import hashlib
import secrets
import struct
import threading
import zlib
from collections.abc import Iterable
from typing import Final

from gateway.text.shared_memory import SharedMemory, create_memory

KEY_BYTES: Final = 16
_PAGE: Final = 4096  # the head of the ring, and the secret of the keys
_SECRET: Final = slice(64, 128)
_HEAD: Final = struct.Struct("<Q")
_PLACE: Final = struct.Struct("<16sQ")  # a key and where its entry is
_WAYS: Final = 8
_BUCKET: Final = _WAYS * _PLACE.size
_ENTRY: Final = struct.Struct("<16sII")  # a key, bytes of ids, their checksum
_BYTES_PER_PLACE: Final = 512  # of the ring, for one place in the index: twice what entries need
_LARGEST_SHARE: Final = 8  # an entry takes no more than this part of the ring
_AGED: Final = 0.75  # of the ring has been written since
_PATIENCE_S: Final = 0.0001


class TokenCache:
    """Stores ids by keys that cannot be guessed.

    Args:
        size: bytes of ids.
        descriptor: file of the shared memory, of ``size_of(size)`` bytes; None for one process.
    """

    def __init__(self, size: int, descriptor: int | None = None) -> None:
        self._shared = SharedMemory(size_of(size), descriptor)
        self._memory = self._shared.data
        self._buckets = _buckets(size)
        self._ring = _PAGE + self._buckets * _BUCKET
        self._size = size
        self._lock = threading.Lock()
        if not any(self._memory[_SECRET]):
            self._memory[_SECRET] = secrets.token_bytes(_SECRET.stop - _SECRET.start)
        self._secret = self._memory[_SECRET]

    @property
    def used(self) -> int:
        """The bytes of the ring that are in use."""
        return min(self._head(), self._size)

    def hasher(self, *parts: bytes) -> hashlib.blake2b:
        """Begin the keys of one kind.

        Keys of other parts differ from these keys, and keys cannot be made without the secret.
        """
        found = hashlib.blake2b(digest_size=KEY_BYTES, key=self._secret)
        for part in parts:
            found.update(_HEAD.pack(len(part)) + part)
        return found

    def get(self, key: bytes) -> bytes | None:
        """Find the packed ids of a key; None where they are unknown or overwritten."""
        place = self._place(key)
        if place is None:
            return None
        start = _PLACE.unpack_from(self._memory, place)[1]
        packed = self._entry(key, start)
        if packed is not None and self._head() - start > self._size * _AGED:
            self.put([(key, packed)])  # what is in use stays
        return packed

    def put(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        """Store packed ids by their keys, unless another process is writing for long."""
        with self._lock, self._shared.locked(0, _PATIENCE_S) as held:
            if held:
                for key, packed in entries:
                    self._put(key, packed)

    def _put(self, key: bytes, packed: bytes) -> None:
        length = _ENTRY.size + len(packed)
        if length > self._size // _LARGEST_SHARE:
            return
        head = self._head() or 1  # 0 is where the index has nothing
        rest = self._size - head % self._size
        start = head if length <= rest else head + rest  # entries do not go on at the beginning of the ring
        _HEAD.pack_into(self._memory, 0, start + length)
        at = self._ring + start % self._size
        entry = _ENTRY.pack(key, len(packed), zlib.crc32(packed))
        self._memory[at : at + length] = entry + packed
        _PLACE.pack_into(self._memory, self._place(key) or self._oldest(key), key, start)

    def _head(self) -> int:
        head: int = _HEAD.unpack_from(self._memory)[0]
        return head

    def _bucket(self, key: bytes) -> int:
        return _PAGE + int.from_bytes(key[:8], "little") % self._buckets * _BUCKET

    def _place(self, key: bytes) -> int | None:
        """The offset of a key in the index; None where it is absent."""
        bucket = self._bucket(key)
        found = self._memory.find(key, bucket, bucket + _BUCKET)
        return None if found < 0 or (found - bucket) % _PLACE.size else found

    def _oldest(self, key: bytes) -> int:
        """The place of the index that a new key takes."""
        bucket = self._bucket(key)
        places = range(bucket, bucket + _BUCKET, _PLACE.size)
        return min(places, key=lambda place: _PLACE.unpack_from(self._memory, place)[1])

    def _entry(self, key: bytes, start: int) -> bytes | None:
        at = self._ring + start % self._size
        owner, length, expected = _ENTRY.unpack_from(self._memory, at)
        if owner != key:
            return None
        packed = self._memory[at + _ENTRY.size : at + _ENTRY.size + length]
        return packed if len(packed) == length and zlib.crc32(packed) == expected else None


def own_token_cache(size: int) -> TokenCache | None:
    """Make the cache of a single process; None for no bytes."""
    return TokenCache(size) if size else None


def create_shared(size: int) -> int:
    """Make the memory that processes share for the cache; returns the file descriptor to inherit."""
    descriptor = create_memory(size_of(size))
    TokenCache(size, descriptor)  # which makes the secret
    return descriptor


def size_of(size: int) -> int:
    """The bytes of memory for a number of bytes of ids."""
    return _PAGE + _buckets(size) * _BUCKET + size


def _buckets(size: int) -> int:
    return max(1, size // _BYTES_PER_PLACE // _WAYS)
