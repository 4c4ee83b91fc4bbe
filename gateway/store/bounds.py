"""The bounds of a store, and what a document counts towards them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gateway.store.interface import StoreFullError

DOCUMENT_BYTES: Final = 768  # what a document takes beside its own bytes: columns and indices, or keys of Redis
ENTRY_BYTES: Final = 64
LARGEST: Final = 2**28  # of one document with its log; a value of Redis may have 2^29 bytes
BATCH: Final = 256  # documents that one transaction makes room of, so that none takes long


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much a store keeps, and how long.

    Attributes:
        max_age_s: seconds from the last write of a document.
        max_bytes: of all documents with their logs, as `document_bytes` and `entries_bytes` count them.
    """

    max_age_s: float
    max_bytes: int

    def check(self, size: int) -> None:
        """Refuse a document that is too large for the store.

        Args:
            size: of the document with its log.

        Raises:
            StoreFullError: it is.
        """
        if size > min(self.max_bytes, LARGEST):
            raise StoreFullError(f"a document of {size} bytes is larger than the store may be")


def document_bytes(owner: str, key: str, data: bytes) -> int:
    """What a document without its log counts."""
    return DOCUMENT_BYTES + len(owner) + len(key) + len(data)


def entries_bytes(entries: Sequence[bytes]) -> int:
    """What entries of a log count."""
    return sum(map(len, entries)) + ENTRY_BYTES * len(entries)
