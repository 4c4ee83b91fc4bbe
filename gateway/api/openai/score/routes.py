"""The routes of ``/v1/score`` and ``/score``."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gateway.api.openai.encoder_endpoint import EncoderEndpoint, list_of, relevance, serve_encoder
from gateway.api.openai.score.protocol import ScoreRequest
from gateway.http.routing import DirectRoute
from gateway.serving.encoder_model import EncoderModel, EncoderResult
from gateway.serving.registry import Registry
from gateway.telemetry.metrics import Metrics


def score_router(registry: Registry, metrics: Metrics) -> APIRouter:
    """Make the routes.

    Args:
        registry: of served models, started.
        metrics: count ignored fields.
    """
    router = APIRouter(route_class=DirectRoute)

    @router.post("/score", name="score_without_version")
    @router.post("/v1/score", name="score")
    async def score(request: Request) -> Response:
        """Score how well the texts of each pair match."""
        return await serve_encoder(_ENDPOINT, request, registry, metrics)

    return router


def _body(asked: ScoreRequest, model: EncoderModel, encoded: EncoderResult) -> dict[str, Any]:
    del asked
    data = [{"index": index, "object": "score", "score": score} for index, score in enumerate(relevance(encoded))]
    return list_of("score", model, data, encoded)


_ENDPOINT = EncoderEndpoint(ScoreRequest, ("rerank",), _body)
