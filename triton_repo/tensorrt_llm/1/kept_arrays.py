"""Arrays that come again and again, made once for each value; they are read-only, and their tensors are kept too."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray


@lru_cache(1024)
def one_id(token: int) -> NDArray[np.int32]:
    """``output_ids`` of one token: INT32 [1, 1, 1]."""
    return _number(token, (1, 1, 1))


@lru_cache(1024)
def count(value: int) -> NDArray[np.int32]:
    """A number as INT32 [1, 1]."""
    return _number(value, (1, 1))


def _number(value: int, shape: tuple[int, ...]) -> NDArray[np.int32]:
    array = np.full(shape, value, np.int32)
    array.setflags(write=False)
    return array
