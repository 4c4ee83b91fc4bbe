"""The requests to an encoder that the inputs of one client's request are split into."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.generation.encoder import EncoderParams
from gateway.text.tokens.encoder_tokenizer import EncoderInput


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
