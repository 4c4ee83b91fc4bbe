"""The endpoint ``/v1/embeddings``."""

from __future__ import annotations

from typing import Any

from gateway.api.openai.embeddings.protocol import EmbeddingsRequest
from gateway.api.openai.encoder_endpoint import EncoderEndpoint, usage
from gateway.serving.encoder_model import EncoderModel, EncoderResult


def _body(fields: EmbeddingsRequest, model: EncoderModel, encoded: EncoderResult) -> dict[str, Any]:
    rows = fields.rows(model, encoded)
    data = [{"object": "embedding", "index": index, "embedding": row} for index, row in enumerate(rows)]
    return {"object": "list", "data": data, "model": model.name, "usage": usage(encoded)}


EMBEDDINGS = EncoderEndpoint(
    {"/v1/embeddings": "create_embeddings"}, "Turn texts into vectors.", EmbeddingsRequest, ("embed",), _body
)
