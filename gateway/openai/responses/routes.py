"""The routes of responses."""

from __future__ import annotations

import functools
import threading

import orjson
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gateway.config import TimeoutSettings
from gateway.generation import EngineError
from gateway.openai.chat.plan import ChatPlan
from gateway.openai.endpoint import Endpoint, begin, serve
from gateway.openai.errors import from_engine
from gateway.openai.responses.check import check_turn
from gateway.openai.responses.objects import EVENTS, ResponseInputTokens, ResponseObject
from gateway.openai.responses.prepare import prepare
from gateway.openai.responses.protocol import ResponsesRequest
from gateway.openai.responses.stream import ResponsesEvents
from gateway.openai.responses.translate import Turn, parse_turn
from gateway.openai.router import DEVIATIONS, GENERATING, IGNORED, answers, api_router, body_of
from gateway.openai.translated_request import translated_plan
from gateway.serving import prompts
from gateway.serving.registry import Registry
from gateway.serving.served_model import ServedModel
from gateway.telemetry.metrics import Metrics
from gateway.web.disconnect import while_connected
from gateway.web.routing import DirectRoute

RESPONSES = Endpoint(parse_turn, check_turn, translated_plan, prepare, ResponsesEvents)
_ANSWERS = answers(ResponseObject, GENERATING, event={"anyOf": list(EVENTS)}, done=False, headers=IGNORED | DEVIATIONS)
_COUNTED = answers(ResponseInputTokens, (400, 404, 415, 429, 503), headers=IGNORED | DEVIATIONS)


def responses_router(registry: Registry, timeouts: TimeoutSettings, metrics: Metrics) -> APIRouter:
    """The routes ``POST /v1/responses`` and ``POST /v1/responses/input_tokens`` over the served models.

    Args:
        registry: of served models, started.
        timeouts: of streams.
        metrics: where ignored parameters are counted.
    """
    router = api_router("responses", DirectRoute)

    @router.post("/v1/responses", responses=_ANSWERS, openapi_extra=body_of(ResponsesRequest))
    async def create_response(request: Request) -> Response:
        """Continue a conversation of items."""
        return await serve(RESPONSES, request, registry, metrics, timeouts)

    @router.post("/v1/responses/input_tokens", responses=_COUNTED, openapi_extra=body_of(ResponsesRequest))
    async def count_input_tokens(request: Request) -> Response:
        """Count the tokens that a request's prompt has, without an answer."""
        begun = await begin(RESPONSES, request, registry, metrics)
        count = functools.partial(_count, begun.request, begun.plan, begun.model)
        work = prompts.long_work(begun.plan.source)
        found = count(None) if work is None else await while_connected(request.scope, request.receive, work.run(count))
        body = orjson.dumps(ResponseInputTokens(object="response.input_tokens", input_tokens=found))
        return Response(body, headers=dict(begun.headers), media_type="application/json")

    return router


def _count(turn: Turn, plan: ChatPlan, model: ServedModel, left: threading.Event | None) -> int:
    """The tokens of the prompt, which may be too long for an answer."""
    parts = model.parts
    most = prompts.most_tokens(parts)
    try:
        with turn.translation.renaming():
            prompt = prompts.build(plan.source, parts, model.settings, most=most, left=left)
    except EngineError as error:
        raise from_engine(error, plan.names) from None
    return len(prompt.ids)
