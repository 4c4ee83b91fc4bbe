"""The store: documents with versions and logs, by their owner and key, in SQLite or Redis, bounded by age and size."""

from gateway.store.interface import (
    ConflictError,
    Document,
    Fill,
    Store,
    StoreError,
    StoreFullError,
    StoreUnavailableError,
    Write,
)
from gateway.store.opening import StoreHolder, check_state, open_store

__all__ = [
    "ConflictError",
    "Document",
    "Fill",
    "Store",
    "StoreError",
    "StoreFullError",
    "StoreHolder",
    "StoreUnavailableError",
    "Write",
    "check_state",
    "open_store",
]
