"""The routes of chat completions."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gateway.api.openai.chat.answer import ChatEvents
from gateway.api.openai.chat.protocol import parse_chat_request
from gateway.api.openai.chat.serving import chat_plan, check_chat, prepare
from gateway.api.openai.endpoint import Endpoint, serve
from gateway.http.routing import DirectRoute
from gateway.serving.registry import Registry
from gateway.settings import TimeoutSettings
from gateway.telemetry.metrics import Metrics

CHAT = Endpoint(parse_chat_request, check_chat, chat_plan, prepare, ChatEvents)


def chat_router(registry: Registry, timeouts: TimeoutSettings, metrics: Metrics) -> APIRouter:
    """Make the route ``POST /v1/chat/completions`` over the served models.

    Args:
        registry: of served models, started.
        timeouts: of streams.
        metrics: where ignored parameters are counted.
    """
    router = APIRouter(route_class=DirectRoute)

    @router.post("/v1/chat/completions")
    async def create_chat_completion(request: Request) -> Response:
        """Continue a conversation."""
        return await serve(CHAT, request, registry, metrics, timeouts)

    return router
