"""The routes of completions."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gateway.api.openai.completions.answer import CompletionEvents
from gateway.api.openai.completions.protocol import parse_completion_request
from gateway.api.openai.completions.serving import check_completion, completion_plan, prepare
from gateway.api.openai.endpoint import Endpoint, serve
from gateway.http.routing import DirectRoute
from gateway.serving.registry import Registry
from gateway.settings import TimeoutSettings
from gateway.telemetry.metrics import Metrics

COMPLETIONS = Endpoint(parse_completion_request, check_completion, completion_plan, prepare, CompletionEvents)


def completions_router(registry: Registry, timeouts: TimeoutSettings, metrics: Metrics) -> APIRouter:
    """Make the route ``POST /v1/completions`` over the served models.

    Args:
        registry: of served models, started.
        timeouts: of streams.
        metrics: where ignored parameters are counted.
    """
    router = APIRouter(route_class=DirectRoute)

    @router.post("/v1/completions")
    async def create_completion(request: Request) -> Response:
        """Continue texts."""
        return await serve(COMPLETIONS, request, registry, metrics, timeouts)

    return router
