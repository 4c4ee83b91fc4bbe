"""Dataclasses that nothing changes, which the type checker holds and the interpreter does not.

A frozen dataclass is filled by ``object.__setattr__``, one call for each field, and a request makes a dozen of them,
one with forty fields. So ``mypy`` sees the frozen class, and at run time it is an ordinary one with slots, compared and
hashed alike. For records that are made once, use ``dataclasses`` itself.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, TypeVar

__all__ = ["dataclass"]

Record = TypeVar("Record")

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(*, frozen: bool, slots: bool) -> Any:
        """Make a dataclass as ``dataclasses.dataclass(frozen=True, slots=True)`` does, but for writes at run time."""
        return dataclasses.dataclass(slots=slots, unsafe_hash=frozen)
