"""The routes of models."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from gateway.openai.models.capabilities import capability_map
from gateway.openai.models.lookup import find_model
from gateway.openai.router import api_router
from gateway.serving.model import ServedModel
from gateway.serving.registry import Registry


def models_router(registry: Registry) -> APIRouter:
    """The routes ``GET /v1/models`` and ``GET /v1/models/{id}`` over the served models."""
    router = api_router("models")

    @router.get("/v1/models")
    async def list_models() -> JSONResponse:
        """List all served models by all their names, ready or not."""
        data = [model_object(model, name) for name, model in registry.names()]
        return JSONResponse({"object": "list", "data": data})

    @router.get("/v1/models/{model_id:path}")
    async def retrieve_model(model_id: str) -> JSONResponse:
        """Describe one served model: OpenAI's fields, ``gateway``: how it is served, ``capabilities``: what it can."""
        model = find_model(registry, model_id)
        return JSONResponse({**model_object(model, model_id), "capabilities": capability_map(model)})

    return router


def model_object(model: ServedModel, name: str) -> dict[str, Any]:
    """OpenAI's model object with a further object ``gateway``; values that are not known yet are null.

    Args:
        model: what is described.
        name: its name, or the alias under which it was asked for; ``gateway.model`` is always its name.
    """
    features = model.features
    reason = model.unready()
    return {
        "id": name,
        "object": "model",
        "created": model.created,
        "owned_by": "gateway",
        "gateway": {
            "model": model.name,
            "aliases": list(model.settings.aliases),
            "ready": reason is None,
            "reason": reason,
            "path": features.path if features else None,
            "path_reason": features.reason if features else None,
            "triton_model": features.model if features else model.settings.triton.model,
            "max_seq_len": model.max_seq_len,
            "token_ids": features.token_ids if features else None,
            "logprobs": features.logprobs if features else None,
            "max_top_logprobs": features.max_top_logprobs if features else None,
            "guide_types": sorted(features.guide_types) if features else None,
            "guide_backend": features.guide_backend if features else None,
            "family": model.family,
            "escape_special_tokens": model.settings.escape_special_tokens,
            "max_stops": model.settings.max_stops,
        },
    }
