"""The routes of Responses: create, read, follow, delete and cancel."""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Mapping

import orjson
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gateway.api.openai.chat.serving import ChatPlan
from gateway.api.openai.endpoint import CheckedRequest, name_header, prepare, respond, respond_with
from gateway.api.openai.errors import OpenAIError, from_engine
from gateway.api.openai.responses.answer import ResponsesAnswer
from gateway.api.openai.responses.background import BackgroundRuns
from gateway.api.openai.responses.compact import compacted, needed, parse_compact_request
from gateway.api.openai.responses.replay import follow
from gateway.api.openai.responses.serving import RESPONSES, begin_turn
from gateway.api.openai.responses.stored import ResponseLostError, ResponseStore, StoredResponse, merge_json_objects
from gateway.api.openai.responses.translate import ResponsesTurn
from gateway.api.openai.state import ApplicationState, CallerState
from gateway.api.openai.stored_items import (
    ENCRYPTED,
    LOGPROBS,
    included,
    page_of,
    paging_of,
    shown,
)
from gateway.generation import EngineError
from gateway.generation.relay.interface import StreamOutput
from gateway.http.access_log import record_of
from gateway.http.client_connection import while_connected
from gateway.http.routing import DirectRoute
from gateway.http.sse import EventStream
from gateway.serving import prompts
from gateway.serving.generator_model import GeneratorModel
from gateway.serving.registry import Registry
from gateway.settings import TimeoutSettings
from gateway.telemetry.metrics import Metrics
from gateway.text.bad_request import BadRequestError, printable

_LARGEST = 2**31  # number of an event


def responses_router(
    registry: Registry, timeouts: TimeoutSettings, metrics: Metrics, state: ApplicationState, runs: BackgroundRuns
) -> APIRouter:
    """Make the routes ``POST /v1/responses`` and ``POST /v1/responses/input_tokens``.

    Args:
        registry: of served models, started.
        timeouts: of streams.
        metrics: where ignored parameters are counted.
        state: where responses are kept.
        runs: background responses of this process.
    """
    router = APIRouter(route_class=DirectRoute)

    @router.post("/v1/responses")
    async def create_response(request: Request) -> Response:
        """Continue a conversation of items."""
        begun = await begin_turn(request, registry, metrics, state)
        if begun.request.response_store is not None:
            await begun.request.response_store.check()
        answer = await prepare(RESPONSES, request, begun)
        if begun.request.request.background:
            return await _background(begun, answer, runs, timeouts)
        return await respond_with(RESPONSES, request, begun, answer, timeouts)

    @router.post("/v1/responses/compact")
    async def compact_response(request: Request) -> Response:
        """Shorten a conversation: the model writes a summary of it, which is encrypted."""
        kept = state.of(request.scope)
        cipher = needed(kept.cipher)
        begun = await begin_turn(request, registry, metrics, state, parse_compact_request)
        answer = await prepare(RESPONSES, request, begun)
        work = compacted(answer, begun.request, cipher, begun.record)
        body = await while_connected(request.scope, request.receive, work)
        return Response(body, headers=dict(begun.headers), media_type="application/json")

    @router.post("/v1/responses/input_tokens")
    async def count_input_tokens(request: Request) -> Response:
        """Count the tokens that a request's prompt has, without an answer."""
        begun = await begin_turn(request, registry, metrics, state)
        count = functools.partial(_count, begun.request, begun.plan, begun.model)
        return await respond(request, begun.plan.source, count, begun.headers)

    return router


async def _background(
    checked: CheckedRequest[ResponsesTurn, ChatPlan],
    answer: ResponsesAnswer,
    runs: BackgroundRuns,
    timeouts: TimeoutSettings,
) -> Response:
    """Begin a background response: it is queued, or followed by its events where a stream is asked for."""
    response_store = checked.request.response_store
    if response_store is None:
        raise ValueError("a background response that is not stored")
    queued = answer.response("queued")
    await runs.begin(response_store, answer, dataclasses.replace(checked.record))
    if not checked.request.stream:
        return Response(queued, headers=dict(checked.headers), media_type="application/json")
    output = StreamOutput()
    events = follow(runs, response_store, answer.id, -1, checked.record, timeouts.keepalive_s, output)
    return EventStream(events, checked.headers, output)


def _count(turn: ResponsesTurn, plan: ChatPlan, model: GeneratorModel, cancel: threading.Event | None) -> bytes:
    """The number of tokens of the prompt, which may be too long for an answer."""
    parts = model.parts
    most = prompts.most_tokens(parts)
    try:
        with turn.translation.renaming():
            prompt = prompts.build(plan.source, parts, model.settings, limit=most, cancel=cancel, recall=model.recall())
    except EngineError as error:
        raise from_engine(error, plan.names()) from None
    return orjson.dumps({"object": "response.input_tokens", "input_tokens": len(prompt.ids)})


def retrieval_router(state: ApplicationState, runs: BackgroundRuns, keepalive_s: float) -> APIRouter:
    """Make the routes of ``/v1/responses/{response_id}``; events are padded where their request asked for it.

    Args:
        state: where responses are kept.
        runs: background responses of this process.
        keepalive_s: silence after which a stream sends a comment.
    """
    router = APIRouter(route_class=DirectRoute)

    @router.get("/v1/responses/{response_id}")
    async def retrieve_response(request: Request) -> Response:
        """Show a response that is kept, or follow its events."""
        kept, query = state.of(request.scope), request.query_params
        stream, after = _flag(query.get("stream"), "stream"), _number(query.get("starting_after"), "starting_after")
        include, left_out = included(query, kept.cipher)
        left_out += ["include_obfuscation"] * _flag(query.get("include_obfuscation"), "include_obfuscation")
        response_store, response_id, stored, _ = await _find(kept, request)
        headers = name_header("x-ignored-parameters", left_out)
        if not stream:
            headers = name_header("x-ignored-parameters", left_out + ["starting_after"] * (after >= 0))
            return _json(_included(stored, include, kept), headers)
        if not stored.streamed:
            message = "Only a response created with 'background' and 'stream' can be streamed again."
            raise BadRequestError(message, "stream", "invalid_value")
        record, output = record_of(request.scope), StreamOutput()
        return EventStream(
            follow(runs, response_store, response_id, after, record, keepalive_s, output), headers, output
        )

    @router.delete("/v1/responses/{response_id}")
    async def delete_response(request: Request) -> Response:
        """Delete a response; one that is being generated ends."""
        response_store, response_id, _, _ = await _find(state.of(request.scope), request)
        if not await response_store.delete(response_id):
            raise _not_found(response_id)
        return _json(orjson.dumps({"id": response_id, "object": "response", "deleted": True}))

    @router.post("/v1/responses/{response_id}/cancel")
    async def cancel_response(request: Request) -> Response:
        """End a background response; one that is cancelled already is shown."""
        return _json((await _cancel(state.of(request.scope), request, runs)).response)

    @router.get("/v1/responses/{response_id}/input_items")
    async def list_input_items(request: Request) -> Response:
        """List the input items of a response, the newest first."""
        kept, paging = state.of(request.scope), paging_of(request.query_params)
        _, _, stored, _ = await _find(kept, request)
        page, left_out = page_of(stored.input, paging, request.query_params, kept.cipher)
        return _json(page, name_header("x-ignored-parameters", left_out))

    return router


async def _cancel(kept: CallerState, request: Request, runs: BackgroundRuns) -> StoredResponse:
    while True:
        response_store, response_id, stored, version = await _find(kept, request)
        if not stored.background:
            raise BadRequestError("Only a response created with 'background' can be cancelled.")
        if stored.status == "cancelled":
            return stored
        if not stored.running:
            raise BadRequestError(f"This response cannot be cancelled because it is already {stored.status}.")
        cancelled = stored.ended("cancelled")
        try:
            await response_store.put(response_id, cancelled, version)
        except ResponseLostError:
            continue  # the response has changed meanwhile
        await response_store.release(response_id)
        run = runs.find(response_store, response_id)
        if run is None:  # the process that generates it notices the cancel, and stores the partial output
            return cancelled
        run.stop()
        await run.ended.wait()
        return (await _find(kept, request))[2]


async def _find(kept: CallerState, request: Request) -> tuple[ResponseStore, str, StoredResponse, int]:
    """Find the response that the path names, with the version of its document."""
    response_id = str(request.path_params["response_id"])
    response_store = None if kept.store is None else ResponseStore(kept.store, kept.owner)
    found = None if response_store is None else await response_store.find(response_id)
    if response_store is None or found is None:
        raise _not_found(response_id)
    return response_store, response_id, *found


def _not_found(response_id: str) -> OpenAIError:
    shown_id = printable(response_id)
    return OpenAIError(404, f"Response with id {shown_id!r} not found.", code="response_not_found")


def _included(stored: StoredResponse, include: frozenset[str], kept: CallerState) -> bytes:
    """Return the response, with encrypted reasoning where requested."""
    if ENCRYPTED not in include or kept.cipher is None:
        return stored.response
    own = orjson.loads(stored.own)
    own["output"] = [shown(item, {LOGPROBS, ENCRYPTED}, kept.cipher) for item in own["output"]]
    return merge_json_objects(orjson.dumps(own), stored.sent)


def _flag(value: str | None, name: str) -> bool:
    if value not in (None, "true", "false"):
        raise BadRequestError(f"Invalid value for '{name}': must be 'true' or 'false'.", name, "invalid_value")
    return value == "true"


def _number(value: str | None, name: str) -> int:
    """A number of an event; -1 where it is absent."""
    if value is None:
        return -1
    if not (value.isascii() and value.isdecimal() and len(value) <= 10 and int(value) < _LARGEST):
        raise BadRequestError(
            f"Invalid value for '{name}': must be the sequence number of an event.", name, "invalid_value"
        )
    return int(value)


def _json(body: bytes, headers: Mapping[str, str] | None = None) -> Response:
    return Response(body, headers=dict(headers or {}), media_type="application/json")
