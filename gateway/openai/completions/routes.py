"""The route of completions: parse, find the model, prepare every prompt, generate, answer."""

from __future__ import annotations

import asyncio
import dataclasses
import functools

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gateway.bad_request import BadRequestError
from gateway.config import TimeoutSettings
from gateway.openai.answering import note_checked, respond
from gateway.openai.body import Body
from gateway.openai.completions.answer import Answer
from gateway.openai.completions.checking import check_completion
from gateway.openai.completions.objects import Completion, CompletionChunk
from gateway.openai.completions.protocol import CompletionRequest, parse_completion_request
from gateway.openai.completions.sequence import Choice, PreparedPrompt, Wanted
from gateway.openai.completions.stream import stream_answer
from gateway.openai.completions.whole import whole_answer
from gateway.openai.guidance import structure
from gateway.openai.ignored import deviations_header, ignored_header
from gateway.openai.models.lookup import find_model
from gateway.openai.parameters import Ignored
from gateway.openai.reading import read_request
from gateway.openai.router import GENERATING, IGNORED, answers, api_router, body_of
from gateway.serving.model import ServedModel
from gateway.serving.registry import Registry
from gateway.telemetry.metrics import Metrics
from gateway.web.direct_route import DirectRoute
from gateway.web.disconnect import while_connected
from gateway.web.record import RequestRecord, record_of

_ANSWERS = answers(Completion, GENERATING, event=CompletionChunk, headers=IGNORED)

_MOST_TOKENS = 2**20  # of all prompts of a request; each takes some tens of bytes until the last answer ends


def completions_router(registry: Registry, timeouts: TimeoutSettings, metrics: Metrics) -> APIRouter:
    """The route ``POST /v1/completions`` over the served models.

    Args:
        registry: of served models, started.
        timeouts: of streams.
        metrics: where ignored parameters are counted.
    """
    router = api_router("completions", DirectRoute)

    @router.post(
        "/v1/completions",
        responses=_ANSWERS,
        openapi_extra=body_of(CompletionRequest),
    )
    async def create_completion(request: Request) -> Response:
        """Continue texts."""
        record = record_of(request.scope)

        def take(body: Body) -> tuple[CompletionRequest, Ignored, ServedModel]:
            asked = parse_completion_request(body)
            model = find_model(registry, asked.model)
            record.model = model.name
            record.annotations = asked.annotations()
            asked, ignored = check_completion(asked, model)
            note_checked(asked, ignored, model, metrics)
            return asked, ignored, model

        asked, ignored, model = await read_request(request, take)
        headers = {"Cache-Control": "no-cache", **ignored_header(ignored.named)}
        headers |= deviations_header([path for form in asked.forms for path in form.deviations()])
        answer = await while_connected(request.scope, request.receive, _prepare(asked, model, record))
        events = functools.partial(stream_answer, answer, record, timeouts) if asked.stream else None
        whole = functools.partial(whole_answer, answer, record)
        return await respond(request, record, headers, events=events, whole=whole)

    return router


async def _prepare(asked: CompletionRequest, model: ServedModel, record: RequestRecord) -> Answer:
    """Build every prompt and prepare its generations; nothing is sent yet.

    Raises:
        EngineError: when the model is not ready, or a prompt is too long.
        BadRequestError: when the engine cannot give what is asked.
    """
    parts = model.parts
    forms = asked.forms
    form = structure(forms[0] if forms else None, model.backend.engine.features, validate=False)
    record.names = asked.names(forms[0].path if forms else None)
    params = dataclasses.replace(asked.sampling_params(parts.defaults), guide=form.guide)
    truncation = asked.truncation(params)
    wanted = Wanted(
        echo=asked.echo,
        logprobs=asked.logprobs,
        generated=asked.max_tokens != 0,
        end_ids=frozenset(parts.end_ids) if asked.shows_end and not asked.ignore_eos else frozenset(),
        text=asked.detokenize,
        token_ids=asked.return_token_ids or not asked.detokenize,
        prompt_ids=asked.return_token_ids,
        names_as_ids=asked.return_tokens_as_token_ids,
        prompt_logprobs=asked.prompt_logprobs,
    )
    choices: list[Choice] = []
    tokens, most = 0, max(_MOST_TOKENS, parts.max_seq_len)
    for index, source in enumerate(asked.sources):
        try:
            prepared = await model.build_prompt(source, functools.partial(PreparedPrompt, source), truncation)
        except BadRequestError as error:
            raise _of_element(error, asked, index) from None
        tokens += len(prepared.prompt.ids)
        if tokens > most:
            message = f"The prompts of one request may have {most} tokens together; send fewer of them."
            raise BadRequestError(message, "prompt", "array_above_max_length")
        generations = await model.generate(prepared.prompt, params, record.request_id, record.started)
        choices += [Choice(running, prepared, wanted, parts.tokenizer) for running in generations]
        await asyncio.sleep(0)  # tokenizing many prompts would hold up other requests' tokens
    return Answer(asked, choices, params.n)


def _of_element(error: BadRequestError, asked: CompletionRequest, index: int) -> BadRequestError:
    """The refusal of one prompt, naming which of several it is."""
    if len(asked.sources) == 1 or not (error.param or "").startswith("prompt"):
        return error
    return BadRequestError(error.message, f"prompt[{index}]" + (error.param or "").removeprefix("prompt"), error.code)
