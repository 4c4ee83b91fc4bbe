"""The list of models in Anthropic's form, under the paths of OpenAI's list."""

from __future__ import annotations

import datetime as dt
from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse
from starlette.requests import Request
from starlette.routing import Match
from starlette.types import Scope

from gateway.api.openai.endpoint import find_model, models_of_caller
from gateway.http.routing import DirectRoute, headers_of
from gateway.serving.registry import Registry
from gateway.serving.served_model import ServedModel


class _AnthropicRoute(DirectRoute):
    """Matches requests with the header ``anthropic-version`` alone; the route behind it takes the others."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match only requests with the header ``anthropic-version``."""
        found, child = super().matches(scope)
        asks = found is Match.FULL and headers_of(scope).get(b"anthropic-version")
        return (found, child) if asks else (Match.NONE, {})


def anthropic_models_router(registry: Registry) -> APIRouter:
    """Make the routes ``GET /v1/models`` and ``GET /v1/models/{id}`` for the header ``anthropic-version``.

    They stand before OpenAI's routes.
    """
    router = APIRouter(route_class=_AnthropicRoute)

    @router.get("/v1/models")
    async def list_anthropic_models(_request: Request) -> JSONResponse:
        """List all served models by all their names, ready or not: all on one page."""
        data = [_model(model, name) for name, model in models_of_caller(registry) if model.task == "generate"]
        first, last = (data[0]["id"], data[-1]["id"]) if data else (None, None)
        return JSONResponse({"data": data, "has_more": False, "first_id": first, "last_id": last})

    @router.get("/v1/models/{model_id:path}")
    async def retrieve_anthropic_model(request: Request) -> JSONResponse:
        """Describe one served model."""
        named, model_id = dict(models_of_caller(registry)), request.path_params["model_id"]
        model_id = model_id if model_id in named else model_id.removesuffix("/")
        return JSONResponse(_model(named.get(model_id) or find_model(registry, model_id), model_id))

    return router


def _model(model: ServedModel, name: str) -> dict[str, Any]:
    created = dt.datetime.fromtimestamp(model.created, dt.timezone.utc)
    return {
        "type": "model",
        "id": name,
        "display_name": name,
        "created_at": created.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "lifecycle": "active",
    }
