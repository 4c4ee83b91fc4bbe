"""The logits that answers were drawn from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray


class GatheredLogits:
    """Follows the logits of one request, which the LLM API gives by step while it streams, and else at the end."""

    def __init__(self, to_array: Callable[[Any], NDArray[np.float32]], limit: int) -> None:
        """Begin.

        Args:
            to_array: makes an array of the engine's tensors.
            limit: tokens that may be generated.
        """
        self._to_array, self._limit = to_array, limit
        self._rows: list[NDArray[np.float32]] = []
        self._shown = 0

    @property
    def count(self) -> int:
        """Tokens whose logits are there."""
        return len(self._rows)

    def take(self, logits: Any, tokens: int) -> int:
        """Take the logits of a step.

        Args:
            logits: [tokens, vocab], a tensor; None where the engine gave none.
            tokens: tokens of the step, an end id included.

        Returns:
            How many rows the engine gave; others than ``tokens`` cannot be told apart, and are not taken.
        """
        rows = [] if logits is None else list(self._to_array(logits))
        if len(rows) == tokens:
            self._rows += rows
        return len(rows)

    def new(self, until: int) -> NDArray[np.float32] | None:
        """[new tokens, vocab] since the last call, up to a place in the answer; None while there were none at all."""
        rows, self._shown = self._rows[self._shown : until], until
        if not self._rows:
            return None
        return np.stack(rows) if rows else np.zeros((0, len(self._rows[0])), np.float32)

    def whole(self, until: int) -> NDArray[np.float32] | None:
        """[limit, vocab], up to a place in the answer and zeros after it; None where there were none at all."""
        if not self._rows:
            return None
        every = np.zeros((max(self._limit, until), len(self._rows[0])), np.float32)
        every[:until] = self._rows[:until]
        return every
