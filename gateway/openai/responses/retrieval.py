"""The routes of responses that are kept: to read, delete and cancel them."""

from __future__ import annotations

from collections.abc import Mapping

import orjson
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gateway.bad_request import BadRequestError
from gateway.openai.endpoint import name_header
from gateway.openai.errors import OpenAIError
from gateway.openai.items.pages import INCLUDE, PAGING, ItemPage, included, page_of, paging_of
from gateway.openai.items.stored import LOGPROBS, SEALED, shown
from gateway.openai.responses.background import Runs
from gateway.openai.responses.following import follow
from gateway.openai.responses.objects import EVENTS, ResponseDeleted, ResponseObject
from gateway.openai.responses.stored import LostError, Shelf, StoredResponse, joined
from gateway.openai.router import IGNORED, answers, api_router, parameter
from gateway.openai.state import Kept, State
from gateway.relay.interface import StreamOutput
from gateway.web.access_log import record_of
from gateway.web.routing import DirectRoute
from gateway.web.sse import EventStream

_ID = parameter("response_id", "path", "Id of a response.", required=True)
_STREAM = parameter("stream", "query", "`true`: the events of a background response that was asked for with `stream`.")
_AFTER = parameter("starting_after", "query", "Number of the event after which the stream begins.")
_SHOWN = answers(ResponseObject, (400, 404), event={"anyOf": list(EVENTS)}, done=False, headers=IGNORED)
_LISTED = answers(ItemPage, (400, 404), headers=IGNORED)
_LARGEST = 2**31


def retrieval_router(state: State, runs: Runs, keepalive_s: float) -> APIRouter:
    """The routes of ``/v1/responses/{response_id}``. Its events are padded or not as they were asked for.

    Args:
        state: where responses are kept.
        runs: background responses of this process.
        keepalive_s: silence after which a stream sends a comment.
    """
    router = api_router("responses", DirectRoute)

    @router.get(
        "/v1/responses/{response_id}",
        responses=_SHOWN,
        openapi_extra={"parameters": [_ID, INCLUDE, _STREAM, _AFTER]},
    )
    async def retrieve_response(request: Request) -> Response:
        """Show a response that is kept, or follow its events."""
        kept, query = state.of(request.scope), request.query_params
        stream, after = _flag(query.get("stream"), "stream"), _number(query.get("starting_after"), "starting_after")
        include, left_out = included(query, kept.seal)
        left_out += ["include_obfuscation"] * _flag(query.get("include_obfuscation"), "include_obfuscation")
        shelf, response_id, stored, _ = await _find(kept, request)
        headers = name_header("x-ignored-parameters", left_out)
        if not stream:
            headers = name_header("x-ignored-parameters", left_out + ["starting_after"] * (after >= 0))
            return _json(_included(stored, include, kept), headers)
        if not stored.streamed:
            message = "Only a response that was asked for with 'background' and 'stream' can be streamed again."
            raise BadRequestError(message, "stream", "invalid_value")
        record, output = record_of(request.scope), StreamOutput()
        return EventStream(follow(runs, shelf, response_id, after, record, keepalive_s, output), headers, output)

    @router.delete(
        "/v1/responses/{response_id}",
        responses=answers(ResponseDeleted, (404,)),
        openapi_extra={"parameters": [_ID]},
    )
    async def delete_response(request: Request) -> Response:
        """Delete a response; one that is being generated ends."""
        shelf, response_id, _, _ = await _find(state.of(request.scope), request)
        if not await shelf.delete(response_id):
            raise _not_found(response_id)
        return _json(orjson.dumps(ResponseDeleted(id=response_id, object="response", deleted=True)))

    @router.post(
        "/v1/responses/{response_id}/cancel",
        responses=answers(ResponseObject, (400, 404)),
        openapi_extra={"parameters": [_ID]},
    )
    async def cancel_response(request: Request) -> Response:
        """End a background response; one that is cancelled already is shown."""
        return _json((await _cancel(state.of(request.scope), request, runs)).response)

    @router.get(
        "/v1/responses/{response_id}/input_items",
        responses=_LISTED,
        openapi_extra={"parameters": [_ID, *PAGING]},
    )
    async def list_input_items(request: Request) -> Response:
        """List the input items of a response, the newest first."""
        kept, paging = state.of(request.scope), paging_of(request.query_params)
        _, _, stored, _ = await _find(kept, request)
        page, left_out = await page_of(stored.input, paging, request.query_params, kept.seal)
        return _json(page, name_header("x-ignored-parameters", left_out))

    return router


async def _cancel(kept: Kept, request: Request, runs: Runs) -> StoredResponse:
    while True:
        shelf, response_id, stored, version = await _find(kept, request)
        if not stored.background:
            raise BadRequestError("Only a response that was asked for with 'background' can be cancelled.")
        if stored.status == "cancelled":
            return stored
        if not stored.running:
            raise BadRequestError(f"This response cannot be cancelled: it is {stored.status} already.")
        cancelled = stored.ended("cancelled")
        try:
            await shelf.put(response_id, cancelled, version)
        except LostError:
            continue  # it went on, or ended, just now
        await shelf.release(response_id)
        run = runs.find(shelf, response_id)
        if run is None:  # another process sees it, and writes what there is of its output
            return cancelled
        run.stop()
        await run.ended.wait()
        return (await _find(kept, request))[2]


async def _find(kept: Kept, request: Request) -> tuple[Shelf, str, StoredResponse, int]:
    """Find the response that the path names, with the version of its document."""
    response_id = str(request.path_params["response_id"])
    shelf = None if kept.store is None else Shelf(kept.store, kept.owner)
    found = None if shelf is None else await shelf.find(response_id)
    if shelf is None or found is None:
        raise _not_found(response_id)
    return shelf, response_id, *found


def _not_found(response_id: str) -> OpenAIError:
    shown_id = response_id[:64].encode("ascii", "backslashreplace").decode()
    return OpenAIError(404, f"Response with id {shown_id!r} not found.", code="response_not_found")


def _included(stored: StoredResponse, include: frozenset[str], kept: Kept) -> bytes:
    """The response; with sealed reasoning where that is asked for."""
    if SEALED not in include or kept.seal is None:
        return stored.response
    own = orjson.loads(stored.own)
    own["output"] = [shown(item, {LOGPROBS, SEALED}, kept.seal) for item in own["output"]]
    return joined(orjson.dumps(own), stored.sent)


def _flag(value: str | None, name: str) -> bool:
    if value not in (None, "true", "false"):
        raise BadRequestError(f"Invalid value for '{name}': it must be 'true' or 'false'.", name, "invalid_value")
    return value == "true"


def _number(value: str | None, name: str) -> int:
    """A number of an event; -1 where it is absent."""
    if value is None:
        return -1
    if not (value.isascii() and value.isdecimal() and len(value) <= 10 and int(value) < _LARGEST):
        raise BadRequestError(f"Invalid value for '{name}': it must be the number of an event.", name, "invalid_value")
    return int(value)


def _json(body: bytes, headers: Mapping[str, str] | None = None) -> Response:
    return Response(body, headers=dict(headers or {}), media_type="application/json")
