"""The requests to an encoder that the inputs of one client's request are split into."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gateway.generation import EngineFeatures
from gateway.generation.encoder import EncoderParams
from gateway.text.tokens.encoder_tokenizer import EncoderInput

_CHARACTERS_OF_A_TOKEN = 4  # about, in texts without a tokenizer


@dataclass(slots=True)
class EncoderBatches:
    """The inputs of one client's request and what became of them.

    Attributes:
        inputs: at least one, with token ids where there is a tokenizer.
        params: parameters of all inputs.
        request_id: prefix of the engine's request ids.
        arrived: ``time.perf_counter()`` at the arrival of the request.
        limit_s: seconds from the arrival within which each batch must be encoded.
        tokens: tokens of the inputs that the engine has encoded, also of a request that failed.
    """

    inputs: Sequence[EncoderInput]
    params: EncoderParams
    request_id: str
    arrived: float
    limit_s: float
    tokens: int = 0


def split(inputs: Sequence[EncoderInput], features: EngineFeatures) -> list[list[int]]:
    """Split inputs into batches of about the same length, the shortest first.

    Returns:
        The places of the inputs of each batch.
    """
    lengths = [_length(each) for each in inputs]
    queries = [each.text if features.one_query else "" for each in inputs]
    most_tokens = features.most_tokens or math.inf

    def joins(batch: Sequence[int], index: int) -> bool:
        if len(batch) == features.most_items or (len(batch) + 1) * lengths[index] > most_tokens:
            return False
        return queries[batch[0]] == queries[index] and (features.pads or lengths[batch[0]] == lengths[index])

    found: list[list[int]] = []
    for index in sorted(range(len(inputs)), key=lambda index: (queries[index], lengths[index])):
        if not found or not joins(found[-1], index):
            found.append([])
        found[-1].append(index)
    return found


def _length(given: EncoderInput) -> int:
    """The tokens of an input; about as many where there is no tokenizer."""
    return len(given.ids) or -(-(len(given.text) + len(given.pair or "")) // _CHARACTERS_OF_A_TOKEN)
