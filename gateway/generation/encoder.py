"""Encoders: engines that turn texts into vectors or scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gateway.generation.engine import Engine
from gateway.text.tokens.encoder_tokenizer import EncoderInput, Truncation


@dataclass(frozen=True, slots=True)
class EncoderParams:
    """The parameters for all inputs of a request.

    Attributes:
        input_type: the use of the texts, such as ``query``; None: the default.
        truncate: as of ``Truncation``.
        dimensions: length of the vectors; None for the model's.
        most_tokens: most tokens of one input, longer ones are cut; None for the model's limit.
        document_tokens: most tokens of the second text of a pair, before the pair is cut; None for any number.
    """

    input_type: str | None = None
    truncate: Truncation = "none"
    dimensions: int | None = None
    most_tokens: int | None = None
    document_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class EncoderRequest:
    """One request to an encoder.

    Attributes:
        id: unique among requests in flight; Triton's request id.
        items: from 1 to ``EngineFeatures.most_items``.
        params: parameters of all items.
        traceparent: as of ``GenerationRequest``.
        pad_id: token id behind the end of shorter inputs.
    """

    id: str
    items: Sequence[EncoderInput]
    params: EncoderParams
    traceparent: str | None = None
    pad_id: int = 0


@dataclass(frozen=True, slots=True)
class EncodedItems:
    """The response to one request.

    Attributes:
        values: float32 [items, width]: vectors, or scores by class.
        token_counts: tokens of each item as the model counted them; None where it does not.
    """

    values: NDArray[np.float32]
    token_counts: Sequence[int] | None = None


def unit_rows(rows: NDArray[Any]) -> NDArray[np.float32]:
    """Scale vectors [rows, width] to length 1; a row of zeros stays as it is."""
    rows = rows.astype(np.float32, copy=False)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.divide(rows, np.where(lengths > 0, lengths, 1), dtype=np.float32)


class Encoder(Engine, Protocol):
    """An engine that returns a vector, or scores, for each input."""

    async def encode(self, request: EncoderRequest) -> EncodedItems:
        """Encode inputs; cancelling the task cancels the request in the engine.

        Raises:
            EngineError: the request failed.
        """
        ...
