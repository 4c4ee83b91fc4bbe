"""The routes of tokens: what a model reads, without asking it."""

from __future__ import annotations

import anyio.to_thread
from fastapi import APIRouter
from fastapi.responses import JSONResponse
from starlette.requests import Request

from gateway.openai.chat.checking import check_chat
from gateway.openai.chat.protocol import ChatCompletionRequest, parse_chat_request
from gateway.openai.ignored import ignored_header
from gateway.openai.models.lookup import find_model
from gateway.openai.reading import read_request
from gateway.openai.router import IGNORED, answers, api_router, body_of, parameter
from gateway.openai.tokens.answers import detokenize, model_or_only, tokenize, tokenizer_info
from gateway.openai.tokens.objects import Detokenized, RenderedChat, Tokenized, TokenizerInfo
from gateway.openai.tokens.protocol import (
    DetokenizeRequest,
    TokenizeRequest,
    parse_detokenize_request,
    parse_tokenize_request,
)
from gateway.openai.tokens.render import render_chat
from gateway.serving.model import ServedModel
from gateway.serving.registry import Registry
from gateway.telemetry.metrics import Metrics
from gateway.web.record import record_of

_ERRORS = (400, 404, 415, 503)
_TOKENIZE = answers(Tokenized, _ERRORS, headers=IGNORED)
_DETOKENIZE = answers(Detokenized, _ERRORS, headers=IGNORED)
_DESCRIBE = answers(TokenizerInfo, (400, 404, 503))
_RENDER = answers(RenderedChat, _ERRORS, headers=IGNORED)
_MODEL = {"parameters": [parameter("model", "query", "Id of a served model.")]}


def tokens_router(registry: Registry, metrics: Metrics) -> APIRouter:
    """The routes ``/tokenize``, ``/detokenize``, ``/tokenizer_info`` and ``/v1/chat/completions/render``.

    Args:
        registry: of served models, started.
        metrics: where ignored fields are counted.
    """
    router = api_router("tokens")

    def begin(request: Request, asked: TokenizeRequest | DetokenizeRequest) -> tuple[ServedModel, dict[str, str]]:
        model = model_or_only(registry, asked.model)
        record_of(request.scope).model = model.name
        for name in asked.ignored():
            metrics.count_ignored(model.name, name)
        return model, ignored_header(asked.ignored())

    @router.post("/tokenize", responses=_TOKENIZE, openapi_extra=body_of(TokenizeRequest))
    async def create_tokens(request: Request) -> JSONResponse:
        """Turn text or a conversation into token ids."""
        asked = await read_request(request, parse_tokenize_request)
        model, headers = begin(request, asked)
        return JSONResponse(await anyio.to_thread.run_sync(tokenize, asked, model), headers=headers)

    @router.post("/detokenize", responses=_DETOKENIZE, openapi_extra=body_of(DetokenizeRequest))
    async def create_text(request: Request) -> JSONResponse:
        """Turn token ids into text."""
        asked = await read_request(request, parse_detokenize_request)
        model, headers = begin(request, asked)
        return JSONResponse(await anyio.to_thread.run_sync(detokenize, asked, model), headers=headers)

    @router.get("/tokenizer_info", responses=_DESCRIBE, openapi_extra=_MODEL)
    async def describe_tokenizer(request: Request, model: str | None = None) -> JSONResponse:
        """Describe the tokenizer of a model, which may be left out when there is one only."""
        served = model_or_only(registry, model)
        record_of(request.scope).model = served.name
        return JSONResponse(tokenizer_info(served))

    @router.post("/v1/chat/completions/render", responses=_RENDER, openapi_extra=body_of(ChatCompletionRequest))
    async def render_chat_completion(request: Request) -> JSONResponse:
        """Show what a chat request would send to the engine, without sending it."""
        record = record_of(request.scope)
        asked = await read_request(request, parse_chat_request)
        model = find_model(registry, asked.model)
        record.model = model.name
        asked, ignored = check_chat(asked, model)
        for name in ignored.counted:
            metrics.count_ignored(model.name, name)
        rendered = await render_chat(asked, model, record)
        return JSONResponse(rendered, headers=ignored_header(ignored.named))

    return router
