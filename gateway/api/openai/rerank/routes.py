"""The routes of rerank: ``/v2/rerank`` responds as Cohere does, the others as Jina and vLLM do."""

from __future__ import annotations

from typing import Any

import numpy as np
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gateway.api.openai.encoder_endpoint import EncoderEndpoint, relevance, serve_encoder, usage
from gateway.api.openai.rerank.protocol import RerankRequest
from gateway.generation.ids import new_id
from gateway.http.routing import DirectRoute
from gateway.serving.encoder_model import EncoderModel, EncoderResult
from gateway.serving.registry import Registry
from gateway.telemetry.metrics import Metrics


def rerank_router(registry: Registry, metrics: Metrics) -> APIRouter:
    """Make the routes.

    Args:
        registry: of served models, started.
        metrics: count ignored fields.
    """
    router = APIRouter(route_class=DirectRoute)

    @router.post("/rerank", name="rerank_without_version")
    @router.post("/v1/rerank", name="rerank")
    async def rerank(request: Request) -> Response:
        """Put documents in order by their relevance for a query."""
        return await serve_encoder(_JINA, request, registry, metrics)

    @router.post("/v2/rerank", name="rerank_v2")
    async def rerank_v2(request: Request) -> Response:
        """Put documents in order by their relevance for a query, as Cohere does."""
        return await serve_encoder(_COHERE, request, registry, metrics)

    return router


def _results(asked: RerankRequest, encoded: EncoderResult, *, documents: bool) -> dict[str, Any]:
    scores, texts = relevance(encoded), asked.texts()
    shown = documents if asked.return_documents is None else asked.return_documents
    results = [
        {"index": index, "relevance_score": scores[index], **({"document": {"text": texts[index]}} if shown else {})}
        for index in np.argsort(-scores, kind="stable").tolist()[: asked.top_n or None]
    ]
    return {"id": f"rerank-{new_id()}", "results": results}


def _jina_body(asked: RerankRequest, model: EncoderModel, encoded: EncoderResult) -> dict[str, Any]:
    return {**_results(asked, encoded, documents=True), "model": model.name, "usage": usage(encoded)}


def _cohere_body(asked: RerankRequest, model: EncoderModel, encoded: EncoderResult) -> dict[str, Any]:
    del model
    meta = {"api_version": {"version": "2"}, "tokens": {"input_tokens": encoded.tokens}}
    return {**_results(asked, encoded, documents=False), "meta": meta}


_JINA = EncoderEndpoint(RerankRequest, ("rerank",), _jina_body)
_COHERE = EncoderEndpoint(RerankRequest, ("rerank",), _cohere_body)
