"""The interface of a store, its failures and its bounds.

All stores share the bounds, the size that a document counts, and the log lines of an outage.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

DOCUMENT_BYTES: Final = 768  # what a document takes beside its own bytes: columns and indices, or keys of Redis
ENTRY_BYTES: Final = 64
LARGEST: Final = 2**28  # of one document with its log; a value of Redis may have 2^29 bytes
BATCH: Final = 256  # documents that one transaction removes at most, so that no transaction takes long
_PROBE: Final = "probe"
_LARGEST_PROBE: Final = 2**20  # bytes

_log = logging.getLogger(__name__)


class StoreError(Exception):
    """The base of a store's errors."""


class ConflictError(StoreError):
    """The document has another version than expected, or is gone.

    Attributes:
        key: key of the document.
    """

    def __init__(self, key: str) -> None:
        super().__init__(f"the document {key} was changed by another request")
        self.key = key


class StoreFullError(StoreError):
    """The document with its log is larger than the store may be."""


class StoreUnavailableError(StoreError):
    """The store cannot be used now; whether a write took place is unknown. The reason is only logged."""


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A stored document.

    Attributes:
        data: its bytes.
        version: 1 for a new document, one more after each write. Appending to its log does not change it.
    """

    data: bytes
    version: int


@dataclass(slots=True)
class StoreFill:
    """The fill level of a store, as one process knows it.

    Attributes:
        bytes: bytes of all documents with their logs, at the last write.
        removed: documents that were removed by age or size.
        unwritten: bytes of the last write if it failed; 0 after a successful one.
    """

    bytes: int = 0
    removed: int = 0
    unwritten: int = 0


@dataclass(frozen=True, slots=True)
class DocumentWrite:
    """A document to write.

    Attributes:
        key: its id.
        data: the whole document.
        expected: its version before, 0 where it must be new; None for any.
    """

    key: str
    data: bytes
    expected: int | None = None


class Store(Protocol):
    """Holds documents, each with a log, that several processes write and read simultaneously.

    A document belongs to an owner, and is found by owner and key only. Age, counted from the last
    ``put`` or ``append``, and the size of all documents with their logs are bounded: the oldest go first, each with its
    log. Every method raises `StoreUnavailableError` where the store cannot be used now.

    Attributes:
        fill: fill level of the store.
    """

    fill: StoreFill

    async def put(self, owner: str, key: str, data: bytes, *, expected: int | None = None) -> int:
        """Write a whole document or nothing; its log stays.

        Args:
            owner: owner of the document.
            key: its id.
            data: the whole document.
            expected: its version before, 0 where it must be new; None for any.

        Returns:
            Its new version.

        Raises:
            ConflictError: it has another version than ``expected``, or is gone.
            StoreFullError: it is larger than the store may be.
        """
        ...

    async def put_all(self, owner: str, writes: Sequence[DocumentWrite]) -> list[int]:
        """Write several documents, all or none, as ``put`` writes one; their keys differ.

        Returns:
            Their new versions.

        Raises:
            ConflictError: one has another version than expected, or is gone; the first such.
            StoreFullError: one is larger than the store may be.
        """
        ...

    async def get(self, owner: str, key: str) -> StoredDocument | None:
        """Read a document; None where it does not exist for this owner."""
        ...

    async def delete(self, owner: str, key: str) -> bool:
        """Delete a document with its log; returns whether it existed."""
        ...

    async def append(self, owner: str, key: str, entries: Sequence[bytes]) -> int:
        """Add entries to the end of a document's log, all or none.

        Returns:
            The number of entries of the log.

        Raises:
            ConflictError: the document is gone.
            StoreFullError: with them it is larger than the store may be.
        """
        ...

    async def entries(self, owner: str, key: str, after: int, limit: int) -> list[bytes]:
        """Read the log of a document from place ``after`` on, counted from 0, at most ``limit`` entries; [] if gone."""
        ...

    async def close(self) -> None:
        """Close the file or the connections; the documents stay."""
        ...


async def check_writable(store: Store) -> None:
    """After a failed write, write and delete a document of the same size.

    Raises:
        StoreUnavailableError: a write would fail again, as on a full disk.
    """
    if store.fill.unwritten:
        await store.put("", _PROBE, bytes(min(store.fill.unwritten, _LARGEST_PROBE)))
        await store.delete("", _PROBE)


@dataclass(frozen=True, slots=True)
class StoreBounds:
    """The bounds of a store by age and size.

    Attributes:
        max_age_s: seconds from the last write of a document.
        max_bytes: most bytes of all documents with their logs, by `document_bytes` and `entries_bytes`.
    """

    max_age_s: float
    max_bytes: int

    def check(self, size: int) -> None:
        """Reject a document that is too large for the store.

        Args:
            size: of the document with its log.

        Raises:
            StoreFullError: the document is too large.
        """
        if size > min(self.max_bytes, LARGEST):
            raise StoreFullError(f"a document of {size} bytes is larger than the limit of the store")


def document_bytes(owner: str, key: str, data: bytes) -> int:
    """The bytes that a document counts without its log."""
    return DOCUMENT_BYTES + len(owner) + len(key) + len(data)


def entries_bytes(entries: Sequence[bytes]) -> int:
    """The bytes of a log's entries that count towards ``StoreBounds.max_bytes``."""
    return sum(map(len, entries)) + ENTRY_BYTES * len(entries)


class StoreOutage:
    """Logs once that a store cannot be used, and once that it can be used again."""

    def __init__(self, name: str) -> None:
        """Begin without one.

        Args:
            name: of the store, in log lines; without a password.
        """
        self._name = name
        self._unreachable = False

    def begin(self, reason: object) -> None:
        """Log that the store cannot be used, unless already logged."""
        if not self._unreachable:
            _log.error("the store cannot be used: %s: %s", self._name, reason, extra={"event": "store_unavailable"})
        self._unreachable = True

    def end(self) -> None:
        """Log that the store can be used again, after an outage."""
        if self._unreachable:
            _log.warning("the store can be used again: %s", self._name, extra={"event": "store_available"})
        self._unreachable = False
