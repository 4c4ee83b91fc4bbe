"""The routes of ``/v1/classify`` and ``/classify``."""

from __future__ import annotations

from typing import Any

import numpy as np
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gateway.api.openai.classify.protocol import ClassifyRequest
from gateway.api.openai.encoder_endpoint import EncoderEndpoint, list_of, serve_encoder
from gateway.http.routing import DirectRoute
from gateway.serving.encoder_model import EncoderModel, EncoderResult
from gateway.serving.registry import Registry
from gateway.telemetry.metrics import Metrics


def classify_router(registry: Registry, metrics: Metrics) -> APIRouter:
    """Make the routes.

    Args:
        registry: of served models, started.
        metrics: count ignored fields.
    """
    router = APIRouter(route_class=DirectRoute)

    @router.post("/classify", name="classify_without_version")
    @router.post("/v1/classify", name="classify")
    async def classify(request: Request) -> Response:
        """Tell the class of each text, with the probabilities of all classes."""
        return await serve_encoder(_ENDPOINT, request, registry, metrics)

    return router


def _body(asked: ClassifyRequest, model: EncoderModel, encoded: EncoderResult) -> dict[str, Any]:
    del asked
    count = encoded.values.shape[1]
    labels = model.labels if len(model.labels) == count else [f"LABEL_{index}" for index in range(count)]
    best = np.argmax(encoded.values, axis=1).tolist()
    data = [
        {"index": index, "label": labels[place], "probs": row, "num_classes": count}
        for index, (place, row) in enumerate(zip(best, encoded.values, strict=True))
    ]
    return list_of("classify", model, data, encoded)


_ENDPOINT = EncoderEndpoint(ClassifyRequest, ("classify",), _body)
