"""The route ``/pooling``."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gateway.api.openai.encoder_endpoint import EncoderEndpoint, list_of, serve_encoder
from gateway.api.openai.pool.protocol import PoolingRequest
from gateway.http.routing import DirectRoute
from gateway.serving.encoder_model import EncoderModel, EncoderResult
from gateway.serving.registry import Registry
from gateway.telemetry.metrics import Metrics


def pooling_router(registry: Registry, metrics: Metrics) -> APIRouter:
    """Make the route.

    Args:
        registry: of served models, started.
        metrics: count ignored fields.
    """
    router = APIRouter(route_class=DirectRoute)

    @router.post("/pooling")
    async def pool(request: Request) -> Response:
        """Turn texts into what the model pools: vectors, or the scores of classes."""
        return await serve_encoder(_ENDPOINT, request, registry, metrics)

    return router


def _body(asked: PoolingRequest, model: EncoderModel, encoded: EncoderResult) -> dict[str, Any]:
    rows = enumerate(asked.rows(model, encoded))
    data = [{"index": index, "object": "pooling", "data": row} for index, row in rows]
    return list_of("pool", model, data, encoded)


_ENDPOINT = EncoderEndpoint(PoolingRequest, ("embed", "classify"), _body)
