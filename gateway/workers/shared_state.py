"""The memory that all workers share: made by their supervisor, inherited and attached by each of them."""

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
    """File descriptors of what workers share. The row of a worker is its number; its supervisor clears it at its end.

    Attributes:
        counts: of what they know of endpoints and of waiting requests.
        buckets: of the limits of keys.
        tokens: of the cache of token ids; None: there is none.
        token_bytes: its size.
        wakers: event descriptors by which they wake each other, one a worker.
    """

    counts: int
    buckets: int
    tokens: int | None
    token_bytes: int
    wakers: tuple[int, ...]

    @classmethod
    def create(cls, workers: int, token_bytes: int) -> SharedState:
        """Make it for a number of workers."""
        return cls(
            counts=create_memory(shared_counts.size_of(workers)),
            buckets=create_memory(shared_buckets.size_of(workers)),
            tokens=create_shared(token_bytes) if token_bytes else None,
            token_bytes=token_bytes,
            wakers=tuple(os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC) for _ in range(workers)),
        )

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Those that a worker inherits."""
        return (self.counts, self.buckets, *self.wakers, *(() if self.tokens is None else (self.tokens,)))

    def attach_counts(self, row: int = 0) -> SharedCounts:
        """Attach what is known of endpoints and waiting requests, as the worker of a row."""
        return SharedCounts(len(self.wakers), row, self.counts, self.wakers)

    def attach_buckets(self, row: int = 0) -> SharedBuckets:
        """Attach the limits of keys, as the worker of a row."""
        return SharedBuckets(len(self.wakers), row, self.buckets)

    def attach_tokens(self) -> TokenCache | None:
        """Attach the cache of token ids; None where there is none."""
        return None if self.tokens is None else TokenCache(self.token_bytes, self.tokens)
