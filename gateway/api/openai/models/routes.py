"""The routes of models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from gateway.api.openai.encoder_endpoint import encoder_capabilities
from gateway.api.openai.endpoint import find_model, models_of_caller
from gateway.api.openai.parameters.row import Parameter
from gateway.api.openai.parameters.table import PARAMETERS, served
from gateway.generation import Capability
from gateway.serving.encoder_model import EncoderModel
from gateway.serving.generator_model import GeneratorModel
from gateway.serving.registry import Registry
from gateway.serving.served_model import ServedModel


def capability_map(model: ServedModel) -> dict[str, dict[str, Any]] | None:
    """Map each parameter's name to its ``class``, ``how``, ``note``, ``limit`` and ``default``.

    The map is None before the engine was discovered. A parameter that means different things in chat and in completions
    has the entry of chat and an entry named ``completions.NAME``. Known outputs of the engine, such as
    ``cached_tokens``, have entries too.
    """
    if model.features is None:
        return None
    if isinstance(model, EncoderModel):
        return {
            name: {"class": "impossible" if how.how == "impossible" else "engine", "how": how.how, "note": how.note}
            for name, how in sorted(encoder_capabilities(model).items())
        }
    defaults = model.defaults.given if isinstance(model, GeneratorModel) else {}
    found: dict[str, dict[str, Any]] = {}
    for row in sorted(PARAMETERS, key=lambda row: "chat" not in row.endpoints):
        how = served(row, model.capabilities)
        name = row.name if row.name not in found else f"{row.endpoints[0]}.{row.name}"
        numbers = {"limit": how.limit, "default": defaults.get(name, row.default)}
        given = {key: value for key, value in numbers.items() if value is not None}
        found[name] = {"class": _class(row, how), "how": how.how, "note": how.note, **given}
    for name, how in model.capabilities.items():
        if name not in found:
            found[name] = {"class": "output", "how": how.how, "note": how.note}
    return found


def _class(row: Parameter, how: Capability) -> str:
    if row.kind == "annotation":
        return "annotation"
    return "impossible" if how.how == "impossible" else "engine"


def models_router(registry: Registry) -> APIRouter:
    """Make the routes ``GET /v1/models`` and ``GET /v1/models/{id}`` over the served models."""
    router = APIRouter()

    @router.get("/v1/models")
    async def list_models() -> JSONResponse:
        """List all served models by all their names, ready or not."""
        data = [model_object(model, name, registry.split(name)) for name, model in models_of_caller(registry)]
        return JSONResponse({"object": "list", "data": data})

    @router.get("/v1/models/{model_id:path}")
    async def retrieve_model(model_id: str) -> JSONResponse:
        """Describe one served model: OpenAI's fields, ``gateway``: how it is served, ``capabilities``: what it can."""
        named = dict(models_of_caller(registry))
        model_id = model_id if model_id in named else model_id.removesuffix("/")
        model = named.get(model_id) or find_model(registry, model_id)
        described = model_object(model, model_id, registry.split(model_id))
        return JSONResponse({**described, "capabilities": capability_map(model)})

    return router


def model_object(model: ServedModel, name: str, split: Mapping[str, float] | None = None) -> dict[str, Any]:
    """Make OpenAI's model object with vLLM's ``max_model_len`` and an object ``gateway``; null is unknown.

    Args:
        model: the served model.
        name: the requested name or alias; ``gateway.model`` is always the model's name.
        split: weights of the models that share the name; ``model`` has the largest.
    """
    features = model.features
    reason = model.refusal()
    described: dict[str, Any] = {
        "id": name,
        "object": "model",
        "created": model.created,
        "owned_by": "gateway",
        "max_model_len": model.max_seq_len,
        "gateway": {
            "model": model.name,
            "aliases": list(model.settings.aliases),
            "ready": reason is None,
            "state": model.backend.condition.state,
            "reason": reason,
            "task": model.task,
            "path": features.path if features else None,
            "path_reason": features.reason if features else None,
            "triton_model": features.model if features else model.settings.triton.model,
            "max_seq_len": model.max_seq_len,
            "token_ids": features.token_ids if features else None,
            "logprobs": features.logprobs if features else None,
            "max_top_logprobs": features.max_top_logprobs if features else None,
            "guide_types": sorted(features.guide_types) if features else None,
            "guide_backend": features.guide_backend if features else None,
            "family": model.family_choice.family.name if model.family_choice else None,
            "family_reason": model.family_choice.reason if model.family_choice else None,
            "family_doubts": dict(model.family_choice.doubts) if model.family_choice else None,
            "template_renders": model.template_renders,
            "escape_special_tokens": model.settings.escape_special_tokens,
            "max_stops": model.settings.max_stops,
            "streams": features.streams if features else None,
            "estimates": sorted(features.estimates) if features else None,
            "losses": list(model.losses) if features else None,
            "cures": {loss: cure for loss, cure in model.losses.items() if cure} if features else None,
        },
    }
    endpoints = [(each.condition.state, each.requests) for each in model.backend.endpoints]
    if endpoints:
        described["gateway"]["endpoints"] = [{"state": state, "in_flight": count} for state, count in endpoints]
    if split:
        described["gateway"]["split"] = dict(split)
    return described
