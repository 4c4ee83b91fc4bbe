"""Packed token ids: 32-bit integers, one after another."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final, final, overload

ID_BYTES: Final = 4


@final
class TokenIds(Sequence[int]):
    """The ids of a long text, which take a ninth of a tuple's memory.

    Attributes:
        packed: little-endian, 4 bytes for each.
    """

    __slots__ = ("_view", "packed")

    def __init__(self, packed: bytes) -> None:
        """Take ids that are packed already."""
        self.packed = packed
        self._view = memoryview(packed).cast("i")

    @classmethod
    def of(cls, ids: Sequence[int]) -> TokenIds:
        """Pack ids, each below 2**31."""
        return cls(pack(ids))

    def __len__(self) -> int:
        """The number of token ids."""
        return len(self._view)

    @overload
    def __getitem__(self, place: int) -> int: ...

    @overload
    def __getitem__(self, place: slice) -> TokenIds: ...

    def __getitem__(self, place: int | slice) -> int | TokenIds:
        """One of them, or a part of them."""
        return TokenIds(self._view[place].tobytes()) if isinstance(place, slice) else self._view[place]

    def __iter__(self) -> Iterator[int]:
        """Give one after another."""
        return iter(self._view)

    def __eq__(self, other: object) -> bool:
        """Whether a sequence has the same ids, in whatever form."""
        if isinstance(other, TokenIds):
            return self.packed == other.packed
        return self._view.tolist() == list(other) if isinstance(other, (list, tuple)) else NotImplemented

    def __hash__(self) -> int:
        """As of a tuple of them, which is equal."""
        return hash(tuple(self._view))

    def __repr__(self) -> str:
        """Show them."""
        return f"TokenIds({self._view.tolist()})"

    def tolist(self) -> list[int]:
        """Return the ids as Python integers."""
        return self._view.tolist()


def pack(ids: Sequence[int]) -> bytes:
    """Pack ids as little-endian 32-bit integers."""
    return ids.packed if type(ids) is TokenIds else struct.pack(f"<{len(ids)}i", *ids)
