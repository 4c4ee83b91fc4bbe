"""The route of chat completions: parse, find the model, generate, answer."""

from __future__ import annotations

import functools

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gateway.config import TimeoutSettings
from gateway.openai.answering import note_checked, respond
from gateway.openai.body import Body
from gateway.openai.chat.answer import whole_answer
from gateway.openai.chat.beginning import begin_answer
from gateway.openai.chat.checking import check_chat
from gateway.openai.chat.objects import ChatCompletion, ChatCompletionChunk
from gateway.openai.chat.protocol import ChatCompletionRequest, parse_chat_request
from gateway.openai.chat.stream import stream_answer
from gateway.openai.chat.turn import ChatTurn, chat_turn
from gateway.openai.ignored import deviations_header, ignored_header
from gateway.openai.models.lookup import find_model
from gateway.openai.parameters import Ignored
from gateway.openai.reading import read_request
from gateway.openai.router import GENERATING, IGNORED, answers, api_router, body_of
from gateway.serving.model import ServedModel
from gateway.serving.prompt_source import ChatPrompt
from gateway.serving.registry import Registry
from gateway.telemetry.metrics import Metrics
from gateway.web.direct_route import DirectRoute
from gateway.web.disconnect import while_connected
from gateway.web.record import record_of

_ANSWERS = answers(
    ChatCompletion,
    GENERATING,
    event=ChatCompletionChunk,
    headers={**IGNORED, "x-strict-schema-deviations": "Where strict schemas leave OpenAI's subset."},
)


def chat_router(registry: Registry, timeouts: TimeoutSettings, metrics: Metrics) -> APIRouter:
    """The route ``POST /v1/chat/completions`` over the served models.

    Args:
        registry: of served models, started.
        timeouts: of streams.
        metrics: where ignored parameters are counted.
    """
    router = api_router("chat", DirectRoute)

    @router.post(
        "/v1/chat/completions",
        responses=_ANSWERS,
        openapi_extra=body_of(ChatCompletionRequest),
    )
    async def create_chat_completion(request: Request) -> Response:
        """Continue a conversation."""
        record = record_of(request.scope)

        def take(body: Body) -> tuple[ChatCompletionRequest, Ignored, ServedModel, ChatTurn | None, ChatPrompt]:
            asked = parse_chat_request(body)
            model = find_model(registry, asked.model)
            record.model = model.name
            record.annotations = asked.annotations()
            asked, ignored = check_chat(asked, model)
            note_checked(asked, ignored, model, metrics)
            turn = chat_turn(asked, model)
            return asked, ignored, model, turn, asked.prompt(turn.shown if turn else None)

        asked, ignored, model, turn, source = await read_request(request, take)
        record.names = asked.names(turn.guided_by if turn else None)
        headers = {"Cache-Control": "no-cache", **ignored_header(ignored.named)}
        headers |= deviations_header(turn.warnings if turn else ())
        beginning = begin_answer(asked, source, turn, model, record)
        answer = await while_connected(request.scope, request.receive, beginning)
        events = functools.partial(stream_answer, answer, record, timeouts) if asked.stream else None
        whole = functools.partial(whole_answer, answer, record)
        return await respond(request, record, headers, events=events, whole=whole)

    return router
