"""The endpoint ``/pooling``."""

from __future__ import annotations

from typing import Any

from gateway.api.openai.encoder_endpoint import EncoderEndpoint, list_of
from gateway.api.openai.pool.protocol import PoolingRequest
from gateway.serving.encoder_model import EncoderModel, EncoderResult


def _body(fields: PoolingRequest, model: EncoderModel, encoded: EncoderResult) -> dict[str, Any]:
    rows = enumerate(fields.rows(model, encoded))
    data = [{"index": index, "object": "pooling", "data": row} for index, row in rows]
    return list_of("pool", model, data, encoded)


POOLING = EncoderEndpoint(
    {"/pooling": "pool"},
    "Turn texts into what the model pools: vectors, or the scores of classes.",
    PoolingRequest,
    ("embed", "classify"),
    _body,
)
