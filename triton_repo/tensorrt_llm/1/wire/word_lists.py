"""Packed word lists of TensorRT-LLM: wire contract 1.4."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wire.request import RejectedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

Words = tuple[tuple[int, ...], ...]


def unpack_words(name: str, packed: NDArray[np.int32]) -> Words:
    """Words as token-id tuples from ``packed`` [2, W].

    Row 0 holds all ids one after another, row 1 the end offset of each word, then -1.

    Raises:
        RejectedError: another shape, or offsets that do not ascend within W.
    """
    if packed.ndim != 2 or packed.shape[0] != 2:
        raise RejectedError(f"{name} must have shape [1, 2, W], not {[1, *packed.shape]}")
    words: list[tuple[int, ...]] = []
    start = 0
    for end in packed[1].tolist():
        if end < 0:
            break
        if not start < end <= packed.shape[1]:
            raise RejectedError(f"{name} has the offset {end} after {start}, in {packed.shape[1]} columns")
        words.append(tuple(packed[0, start:end].tolist()))
        start = end
    return tuple(words)


def ends_with(tokens: Sequence[int], word: Sequence[int]) -> bool:
    """Whether ``tokens`` ends with ``word``, as an exact token sequence."""
    return len(tokens) >= len(word) and all(a == b for a, b in zip(reversed(tokens), reversed(word), strict=False))


def banned_next(tokens: Sequence[int], words: Words) -> list[int]:
    """Ids that would complete one of ``words`` after ``tokens``."""
    return [word[-1] for word in words if ends_with(tokens, word[:-1])]
