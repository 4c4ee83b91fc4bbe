"""Typed access to the input tensors of one request."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wire.request import RejectedError
from wire.word_lists import Words, unpack_words


class TensorReader:
    """The inputs of one request by name; an empty tensor counts as absent."""

    def __init__(self, inputs: Mapping[str, NDArray[Any]]) -> None:
        self._inputs = {name: array for name, array in inputs.items() if array.size}

    def asks_for(self, name: str) -> bool:
        """Whether a tensor is there and, if it is BOOL, true somewhere."""
        array = self._inputs.get(name)
        return array is not None and (array.dtype != np.bool_ or bool(array.any()))

    def scalar(self, name: str) -> Any:
        """First value of a tensor as a Python value, None when absent."""
        return self._inputs[name].reshape(-1)[0].item() if name in self._inputs else None

    def text(self, name: str) -> str | None:
        """First string of a tensor, None when absent.

        Raises:
            RejectedError: it is not UTF-8.
        """
        if name not in self._inputs:
            return None
        value = self._inputs[name].reshape(-1)[0]
        try:
            return value.decode() if isinstance(value, bytes) else str(value)
        except UnicodeDecodeError:
            raise RejectedError(f"{name} must be UTF-8") from None

    def required(self, name: str) -> int:
        """First value of a tensor as a whole number.

        Raises:
            RejectedError: the tensor is absent.
        """
        value = self.scalar(name)
        if value is None:
            raise RejectedError(f"A value is required for {name}")
        return int(value)

    def flag(self, name: str) -> bool:
        """Whether the first value of a tensor is true; False when absent."""
        return bool(self.scalar(name))

    def number(self, name: str, default: float) -> float:
        """First value of a tensor, the default when absent.

        Raises:
            RejectedError: it is not finite.
        """
        value = self.scalar(name)
        if value is None:
            return default
        if not math.isfinite(value):
            raise RejectedError(f"{name} must be finite")
        return float(value)

    def count(self, name: str, highest: int) -> int | None:
        """First value of a tensor as a whole number from 0 to the highest, None when absent.

        Raises:
            RejectedError: it is another number.
        """
        value: int | None = self.scalar(name)
        if value is not None and not 0 <= value <= highest:
            raise RejectedError(f"{name} must be from 0 to {highest}, not {value}")
        return value

    def row(self, name: str) -> NDArray[Any] | None:
        """A tensor without its batch dimension, None when absent.

        Raises:
            RejectedError: the batch has more than one row.
        """
        if name not in self._inputs:
            return None
        array = self._inputs[name]
        if array.shape[0] != 1:
            raise RejectedError(f"{name} has batch size {array.shape[0]}; send one sequence per request")
        row: NDArray[Any] = array[0]
        return row

    def words(self, name: str) -> Words:
        """A packed word list; see `unpack_words`."""
        packed = self.row(name)
        return () if packed is None else unpack_words(name, packed)
