"""The route ``/v1/embeddings``."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gateway.api.openai.embeddings.protocol import EmbeddingsRequest
from gateway.api.openai.encoder_endpoint import EncoderEndpoint, serve_encoder, usage
from gateway.http.routing import DirectRoute
from gateway.serving.encoder_model import EncoderModel, EncoderResult
from gateway.serving.registry import Registry
from gateway.telemetry.metrics import Metrics


def embeddings_router(registry: Registry, metrics: Metrics) -> APIRouter:
    """Make the route.

    Args:
        registry: of served models, started.
        metrics: count ignored fields.
    """
    router = APIRouter(route_class=DirectRoute)

    @router.post("/v1/embeddings")
    async def create_embeddings(request: Request) -> Response:
        """Turn texts into vectors."""
        return await serve_encoder(_ENDPOINT, request, registry, metrics)

    return router


def _body(asked: EmbeddingsRequest, model: EncoderModel, encoded: EncoderResult) -> dict[str, Any]:
    rows = asked.rows(model, encoded)
    data = [{"object": "embedding", "index": index, "embedding": row} for index, row in enumerate(rows)]
    return {"object": "list", "data": data, "model": model.name, "usage": usage(encoded)}


_ENDPOINT = EncoderEndpoint(EmbeddingsRequest, ("embed",), _body)
