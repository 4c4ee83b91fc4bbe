"""Memory that all workers share: the supervisor makes it, and each worker inherits and attaches it."""

from __future__ import annotations

import os
from typing import NamedTuple

from gateway.http.access import shared_buckets
from gateway.http.access.shared_buckets import SharedBuckets
from gateway.serving.fleet import shared_counts
from gateway.serving.fleet.shared_counts import SharedCounts
from gateway.text.shared_memory import create_memory
from gateway.text.tokens.token_cache import TokenCache, create_shared


class SharedState(NamedTuple):
    """File descriptors of the memory that workers share.

    The row of a worker is its number; the supervisor clears it when the worker ends.

    Attributes:
        counts: memory of the counts of endpoints and waiting requests.
        buckets: memory of the buckets of callers' limits.
        tokens: memory of the cache of token ids; None without a cache.
        token_bytes: size of the cache.
        wakers: event descriptors by which workers wake each other, one for each.
    """

    counts: int
    buckets: int
    tokens: int | None
    token_bytes: int
    wakers: tuple[int, ...]

    @classmethod
    def create(cls, workers: int, token_bytes: int) -> SharedState:
        """Make the memory for a number of workers."""
        return cls(
            counts=create_memory(shared_counts.size_of(workers)),
            buckets=create_memory(shared_buckets.size_of(workers)),
            tokens=create_shared(token_bytes) if token_bytes else None,
            token_bytes=token_bytes,
            wakers=tuple(os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC) for _ in range(workers)),
        )

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The descriptors that a worker inherits."""
        return (self.counts, self.buckets, *self.wakers, *(() if self.tokens is None else (self.tokens,)))

    def attach_counts(self, row: int = 0) -> SharedCounts:
        """Attach the counts of endpoints and waiting requests, as the worker of a row."""
        return SharedCounts(len(self.wakers), row, self.counts, self.wakers)

    def attach_buckets(self, row: int = 0) -> SharedBuckets:
        """Attach the buckets of callers' limits, as the worker of a row."""
        return SharedBuckets(len(self.wakers), row, self.buckets)

    def attach_tokens(self) -> TokenCache | None:
        """Attach the cache of token ids; None without a cache."""
        return None if self.tokens is None else TokenCache(self.token_bytes, self.tokens)
