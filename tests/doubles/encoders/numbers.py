"""The numbers that the doubles of encoders return, exact in FP16, and the words by which a text makes them fail."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

LONGEST = 20
"""Words of a text that a model with the request parameter ``truncate`` takes."""


def vector(text: str, width: int) -> list[float]:
    """The vector of a text, or of a token by its name."""
    return [(zlib.crc32(f"{place}:{text}".encode()) % 127 - 63) / 64 or 1.0 for place in range(width)]


def pair_of(texts: Sequence[str]) -> str:
    """The name of a pair, or of any number of texts that go together."""
    return " || ".join(texts)


def token(number: int, kind: int = 0) -> str:
    """The name of a token."""
    return f"{number}@{kind}"


def tokens_of(ids: Sequence[int], kinds: Sequence[int] | None = None) -> str:
    """The name of a text that came as token ids."""
    return " ".join(token(number, kind) for number, kind in zip(ids, kinds or [0] * len(ids), strict=True))
