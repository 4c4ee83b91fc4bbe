"""The store: documents with versions and logs, by their owner and key, in SQLite or Redis, bounded by age and size."""

from gateway.serving.store.interface import (
    ConflictError,
    DocumentWrite,
    Store,
    StoredDocument,
    StoreError,
    StoreFill,
    StoreFullError,
    StoreUnavailableError,
    check_writable,
)
from gateway.serving.store.opening import StoreHolder, check_state, open_store

__all__ = [
    "ConflictError",
    "DocumentWrite",
    "Store",
    "StoreError",
    "StoreFill",
    "StoreFullError",
    "StoreHolder",
    "StoreUnavailableError",
    "StoredDocument",
    "check_state",
    "check_writable",
    "open_store",
]
