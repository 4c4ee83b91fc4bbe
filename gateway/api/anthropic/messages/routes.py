"""The routes of Messages."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import orjson
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gateway.api.anthropic.messages.answer import MessagesAnswer, MessagesEvents
from gateway.api.anthropic.messages.protocol import unserved_betas
from gateway.api.anthropic.messages.serving import check_turn, prepare, too_long
from gateway.api.anthropic.messages.translate import MessagesTurn, parse_counted, parse_turn
from gateway.api.openai.chat.serving import ChatPlan
from gateway.api.openai.endpoint import Endpoint, parse_and_check, respond, serve
from gateway.api.openai.translation import translated_plan
from gateway.http.routing import DirectRoute
from gateway.serving import prompts
from gateway.serving.generator_model import GeneratorModel
from gateway.serving.registry import Registry
from gateway.settings import TimeoutSettings
from gateway.telemetry.metrics import Metrics


def messages_router(registry: Registry, timeouts: TimeoutSettings, metrics: Metrics) -> APIRouter:
    """Make the routes ``POST /v1/messages`` and ``POST /v1/messages/count_tokens`` over the served models.

    Args:
        registry: of served models, started.
        timeouts: of streams.
        metrics: where ignored parameters are counted.
    """
    router = APIRouter(route_class=DirectRoute)

    @router.post("/v1/messages")
    async def create_message(request: Request) -> Response:
        """Continue a conversation, in Anthropic's form."""
        return await serve(_of(request, parse_turn), request, registry, metrics, timeouts)

    @router.post("/v1/messages/count_tokens")
    async def count_message_tokens(request: Request) -> Response:
        """Count the tokens that a conversation's prompt has, tools among them, without an answer."""
        begun = await parse_and_check(_of(request, parse_counted), request, registry, metrics)
        count = functools.partial(_count, begun.request, begun.plan, begun.model)
        return await respond(request, begun.plan.source, count, begun.headers)

    return router


def _of(
    request: Request, parse: Callable[[dict[str, Any], Sequence[str]], MessagesTurn]
) -> Endpoint[MessagesTurn, ChatPlan, MessagesAnswer]:
    """The endpoint for a request, whose betas stand in a header and not in the body."""
    betas = unserved_betas(request.scope)
    return Endpoint(lambda fields: parse(fields, betas), check_turn, translated_plan, prepare, MessagesEvents)


def _count(turn: MessagesTurn, plan: ChatPlan, model: GeneratorModel, cancel: threading.Event | None) -> bytes:
    """The number of tokens of the prompt, which may be too long for an answer."""
    parts = model.parts
    most = prompts.most_tokens(parts)
    with turn.translation.renaming(), too_long():
        prompt = prompts.build(plan.source, parts, model.settings, limit=most, cancel=cancel, recall=model.recall())
    return orjson.dumps({"input_tokens": len(prompt.ids)})
