"""The list of models as Anthropic's clients read it, under the paths that OpenAI's have."""

from __future__ import annotations

import datetime as dt
from typing import Final, Literal

from fastapi import APIRouter
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from starlette.routing import Match
from starlette.types import Scope
from typing_extensions import TypedDict

from gateway.api.anthropic.errors import anthropic_answers
from gateway.api.openai.endpoint import find_model, models_of_caller
from gateway.api.openai.router import api_router, parameter
from gateway.http.routing import headers_of
from gateway.serving.registry import Registry
from gateway.serving.served_model import ServedModel

_VERSION: Final = {
    "parameters": [
        parameter("anthropic-version", "header", "Any value: lists models in the format of Anthropic's API.")
    ]
}


class AnthropicModel(TypedDict):
    """A served model, as clients that send ``anthropic-version`` see it."""

    type: Literal["model"]
    id: str
    display_name: str
    created_at: str
    lifecycle: Literal["active"]


class AnthropicModelList(TypedDict):
    """All served models by all their names, as clients that send ``anthropic-version`` see them."""

    data: list[AnthropicModel]
    has_more: Literal[False]
    first_id: str | None
    last_id: str | None


class _AnthropicRoute(APIRoute):
    """Matches requests with the header ``anthropic-version`` alone; the route behind it takes the others."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """See the base."""
        found, child = super().matches(scope)
        asks = found is Match.FULL and headers_of(scope).get(b"anthropic-version")
        return (found, child) if asks else (Match.NONE, {})


def anthropic_models_router(registry: Registry) -> APIRouter:
    """The routes ``GET /v1/models`` and ``GET /v1/models/{id}`` for requests with ``anthropic-version``.

    They go before OpenAI's.
    """
    router = api_router("models", _AnthropicRoute)

    @router.get("/v1/models", responses=anthropic_answers(AnthropicModelList), openapi_extra=_VERSION)
    async def list_anthropic_models() -> JSONResponse:
        """List all served models by all their names, ready or not: all on one page."""
        data = [_model(model, name) for name, model in models_of_caller(registry)]
        first, last = (data[0]["id"], data[-1]["id"]) if data else (None, None)
        return JSONResponse(AnthropicModelList(data=data, has_more=False, first_id=first, last_id=last))

    @router.get("/v1/models/{model_id:path}", responses=anthropic_answers(AnthropicModel), openapi_extra=_VERSION)
    async def retrieve_anthropic_model(model_id: str) -> JSONResponse:
        """Describe one served model."""
        named = dict(models_of_caller(registry))
        model_id = model_id if model_id in named else model_id.removesuffix("/")
        return JSONResponse(_model(named.get(model_id) or find_model(registry, model_id), model_id))

    return router


def _model(model: ServedModel, name: str) -> AnthropicModel:
    created = dt.datetime.fromtimestamp(model.created, dt.timezone.utc)
    return {
        "type": "model",
        "id": name,
        "display_name": name,
        "created_at": created.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "lifecycle": "active",
    }
