"""The routes of the token endpoints, which need no engine."""

from __future__ import annotations

import functools

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response
from starlette.requests import Request

from gateway.api.openai.chat.routes import CHAT
from gateway.api.openai.endpoint import name_header, note_model, prepare, respond
from gateway.api.openai.endpoint import parse_and_check as begin_request
from gateway.api.openai.request_body import read_request
from gateway.api.openai.request_json import RequestBody
from gateway.api.openai.tokens import encoder_tokens
from gateway.api.openai.tokens.answer import (
    detokenize,
    model_or_only,
    render,
    tokenize,
    tokenizer_info,
    tokenizing_model,
)
from gateway.api.openai.tokens.protocol import (
    DetokenizeRequest,
    TokenizeRequest,
    parse_detokenize_request,
    parse_tokenize_request,
)
from gateway.http.access_log import record_of
from gateway.http.client_connection import while_connected
from gateway.http.routing import DirectRoute
from gateway.serving.encoder_model import EncoderModel
from gateway.serving.generator_model import GeneratorModel
from gateway.serving.prompts import ChatPrompt, IdsPrompt, TextPrompt
from gateway.serving.registry import Registry
from gateway.telemetry.metrics import Metrics

_Model = GeneratorModel | EncoderModel


def tokens_router(registry: Registry, metrics: Metrics) -> APIRouter:
    """Make the routes ``/tokenize``, ``/detokenize``, ``/tokenizer_info`` and ``/v1/chat/completions/render``.

    Args:
        registry: of served models, started.
        metrics: count ignored fields.
    """
    router = APIRouter(route_class=DirectRoute)

    def parse_and_check(
        request: Request, fields: TokenizeRequest | DetokenizeRequest, body: RequestBody
    ) -> tuple[_Model, dict[str, str]]:
        model = tokenizing_model(registry, fields.model)
        note_model(record_of(request.scope), model)
        metrics.count_ignored(model.name, fields.ignored())
        return model, name_header("x-ignored-parameters", [*fields.ignored(), *body.replaced])

    @router.post("/tokenize")
    async def create_tokens(request: Request) -> Response:
        """Turn text or a conversation into token ids."""

        def take(body: RequestBody) -> tuple[TokenizeRequest, ChatPrompt | TextPrompt, _Model, dict[str, str]]:
            asked = parse_tokenize_request(body.fields)
            return (asked, asked.source(), *parse_and_check(request, asked, body))

        asked, source, model, headers = await read_request(request, take)
        if isinstance(model, EncoderModel):
            return await respond(request, source, lambda _: encoder_tokens.tokenize(asked, model), headers)
        write = functools.partial(tokenize, asked, source, model)
        return await respond(request, source, write, headers)

    @router.post("/detokenize")
    async def create_text(request: Request) -> Response:
        """Turn token ids into text."""

        def take(body: RequestBody) -> tuple[DetokenizeRequest, _Model, dict[str, str]]:
            asked = parse_detokenize_request(body.fields)
            return (asked, *parse_and_check(request, asked, body))

        asked, model, headers = await read_request(request, take)
        if isinstance(model, EncoderModel):
            write = functools.partial(encoder_tokens.detokenize, asked, model)
        else:
            write = functools.partial(detokenize, asked, model)
        return await respond(request, IdsPrompt(asked.tokens), lambda _: write(), headers)

    @router.get("/tokenizer_info")
    async def describe_tokenizer(request: Request) -> JSONResponse:
        """Describe the tokenizer of a model, which may be left out when there is one only."""
        served = model_or_only(registry, request.query_params.get("model"))
        note_model(record_of(request.scope), served)
        return JSONResponse(tokenizer_info(served))

    @router.post("/v1/chat/completions/render")
    async def render_chat_completion(request: Request) -> Response:
        """Show what a chat request would send to the engine, without sending it."""
        begun = await begin_request(CHAT, request, registry, metrics)
        answer = await prepare(CHAT, request, begun)
        rendered = await while_connected(request.scope, request.receive, render(answer, begun.model))
        return Response(rendered, headers=begun.headers, media_type="application/json")

    return router
