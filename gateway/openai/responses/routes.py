"""The routes of responses."""

from __future__ import annotations

import dataclasses
import functools
import threading

import orjson
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gateway.config import TimeoutSettings
from gateway.generation import EngineError
from gateway.openai.chat.serving import ChatPlan
from gateway.openai.endpoint import Begun, answered, prepared
from gateway.openai.errors import from_engine
from gateway.openai.responses.answer import ResponsesAnswer
from gateway.openai.responses.background import Runs
from gateway.openai.responses.begin import RESPONSES, begin_turn
from gateway.openai.responses.compact import CompactRequest, compacted, needed, parse_compact_request
from gateway.openai.responses.examples import EXAMPLES, TO_COMPACT, TO_COUNT
from gateway.openai.responses.following import follow
from gateway.openai.responses.objects import EVENTS, ResponseCompaction, ResponseInputTokens, ResponseObject
from gateway.openai.responses.protocol import ResponsesRequest
from gateway.openai.responses.translate import Turn
from gateway.openai.router import DEVIATIONS, GENERATING, IGNORED, answers, api_router, body_of
from gateway.openai.state import State
from gateway.relay.interface import StreamOutput
from gateway.serving import prompts
from gateway.serving.registry import Registry
from gateway.serving.served_model import ServedModel
from gateway.telemetry.metrics import Metrics
from gateway.web.client_connection import while_connected
from gateway.web.routing import DirectRoute
from gateway.web.sse import EventStream

_ANSWERS = answers(ResponseObject, GENERATING, event={"anyOf": list(EVENTS)}, done=False, headers=IGNORED | DEVIATIONS)
_COMPACTED = answers(ResponseCompaction, GENERATING, headers=IGNORED)
_COUNTED = answers(ResponseInputTokens, (400, 404, 415, 429, 503), headers=IGNORED | DEVIATIONS)


def responses_router(
    registry: Registry, timeouts: TimeoutSettings, metrics: Metrics, state: State, runs: Runs
) -> APIRouter:
    """The routes ``POST /v1/responses`` and ``POST /v1/responses/input_tokens`` over the served models.

    Args:
        registry: of served models, started.
        timeouts: of streams.
        metrics: where ignored parameters are counted.
        state: where responses are kept.
        runs: background responses of this process.
    """
    router = api_router("responses", DirectRoute)

    @router.post("/v1/responses", responses=_ANSWERS, openapi_extra=body_of(ResponsesRequest, EXAMPLES))
    async def create_response(request: Request) -> Response:
        """Continue a conversation of items."""
        begun = await begin_turn(request, registry, metrics, state)
        answer = await prepared(RESPONSES, request, begun)
        if begun.request.request.background:
            return await _background(begun, answer, runs, timeouts)
        return await answered(RESPONSES, request, begun, answer, timeouts)

    @router.post("/v1/responses/compact", responses=_COMPACTED, openapi_extra=body_of(CompactRequest, TO_COMPACT))
    async def compact_response(request: Request) -> Response:
        """Make a conversation shorter: what was said becomes a sealed summary by the model."""
        kept = state.of(request.scope)
        seal = needed(kept.seal)
        begun = await begin_turn(request, registry, metrics, state, parse_compact_request)
        answer = await prepared(RESPONSES, request, begun)
        work = compacted(answer, begun.request, seal, begun.record)
        body = await while_connected(request.scope, request.receive, work)
        return Response(body, headers=dict(begun.headers), media_type="application/json")

    @router.post("/v1/responses/input_tokens", responses=_COUNTED, openapi_extra=body_of(ResponsesRequest, TO_COUNT))
    async def count_input_tokens(request: Request) -> Response:
        """Count the tokens that a request's prompt has, without an answer."""
        begun = await begin_turn(request, registry, metrics, state)
        count = functools.partial(_count, begun.request, begun.plan, begun.model)
        work = prompts.long_work(begun.plan.source)
        found = count(None) if work is None else await while_connected(request.scope, request.receive, work.run(count))
        body = orjson.dumps(ResponseInputTokens(object="response.input_tokens", input_tokens=found))
        return Response(body, headers=dict(begun.headers), media_type="application/json")

    return router


async def _background(
    begun: Begun[Turn, ChatPlan], answer: ResponsesAnswer, runs: Runs, timeouts: TimeoutSettings
) -> Response:
    """Begin a background response: it is queued, or followed by its events where a stream is asked for."""
    shelf = begun.request.shelf
    if shelf is None:
        raise ValueError("a background response that is not kept")
    queued = answer.response("queued")
    await runs.begin(shelf, answer, dataclasses.replace(begun.record))
    if not begun.request.stream:
        return Response(queued, headers=dict(begun.headers), media_type="application/json")
    output = StreamOutput()
    events = follow(runs, shelf, answer.id, -1, begun.record, timeouts.keepalive_s, output)
    return EventStream(events, begun.headers, output)


def _count(turn: Turn, plan: ChatPlan, model: ServedModel, left: threading.Event | None) -> int:
    """The tokens of the prompt, which may be too long for an answer."""
    parts = model.parts
    most = prompts.most_tokens(parts)
    try:
        with turn.translation.renaming():
            prompt = prompts.build(plan.source, parts, model.settings, most=most, left=left, recall=model.recall())
    except EngineError as error:
        raise from_engine(error, plan.names) from None
    return len(prompt.ids)
