"""The route ``/v1/embeddings``."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import orjson
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gateway.api.openai.embeddings.protocol import EmbeddingsRequest
from gateway.api.openai.encoder_endpoint import EncoderEndpoint, serve_encoder, usage
from gateway.serving.encoder_model import Encoded, EncoderModel
from gateway.serving.registry import Registry
from gateway.telemetry.metrics import Metrics


def embeddings_router(registry: Registry, metrics: Metrics) -> APIRouter:
    """Make the route.

    Args:
        registry: of served models, started.
        metrics: count ignored fields.
    """
    router = APIRouter()

    @router.post("/v1/embeddings")
    async def create_embeddings(request: Request) -> Response:
        """Turn texts into vectors."""
        return await serve_encoder(_ENDPOINT, request, registry, metrics)

    return router


def _body(asked: EmbeddingsRequest, model: EncoderModel, encoded: Encoded) -> bytes:
    vectors = np.ascontiguousarray(encoded.values, "<f4")
    rows: Any = vectors
    if asked.encoding_format == "base64":
        rows = [base64.b64encode(row).decode() for row in vectors]
    data = [{"object": "embedding", "index": index, "embedding": row} for index, row in enumerate(rows)]
    body = {"object": "list", "data": data, "model": model.name, "usage": usage(encoded)}
    return orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY)


_ENDPOINT = EncoderEndpoint(EmbeddingsRequest, ("embed",), _body)
