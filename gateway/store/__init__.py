"""The store: documents with versions and logs, by their owner and key, in SQLite or Redis, bounded by age and size."""

from gateway.store.interface import (
    ConflictError,
    Document,
    Store,
    StoreError,
    StoreFullError,
    StoreUnavailableError,
)
from gateway.store.opening import StoreHolder, check_state, open_store

__all__ = [
    "ConflictError",
    "Document",
    "Store",
    "StoreError",
    "StoreFullError",
    "StoreHolder",
    "StoreUnavailableError",
    "check_state",
    "open_store",
]
