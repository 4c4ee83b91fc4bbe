"""The routes of conversations."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gateway.api.openai.conversations import contents
from gateway.api.openai.conversations.protocol import (
    Asked,
    ConversationRequest,
    ConversationUpdate,
    ItemsRequest,
    parse_conversation,
)
from gateway.api.openai.endpoint import name_header
from gateway.api.openai.request_body import read_request
from gateway.api.openai.request_json import RequestBody
from gateway.api.openai.state import ApplicationState
from gateway.api.openai.stored_items import (
    StoredItems,
    append,
    included,
    list_of,
    page_of,
    paging_of,
    shown,
)
from gateway.http.routing import DirectRoute
from gateway.text.client_json import write_client_json


def conversations_router(state: ApplicationState) -> APIRouter:
    """Make the routes of ``/v1/conversations`` and of their items.

    Args:
        state: where they are kept.
    """
    router = APIRouter(route_class=DirectRoute)
    _add_items(router, state)
    _add_conversations(router, state)
    return router


def _add_items(router: APIRouter, state: ApplicationState) -> None:
    @router.get("/v1/conversations/{conversation_id}/items/{item_id}")
    async def retrieve_conversation_item(request: Request) -> Response:
        """Show an item of a conversation."""
        kept = state.of(request.scope)
        found = await contents.load(kept.needed(), kept.owner, _id(request))
        include, left_out = included(request.query_params, kept.cipher)
        return _answer(shown(found.item(_item_id(request)), include, kept.cipher), left_out)

    @router.delete("/v1/conversations/{conversation_id}/items/{item_id}")
    async def delete_conversation_item(request: Request) -> Response:
        """Take an item out of a conversation."""
        kept, item_id = state.of(request.scope), _item_id(request)
        found, _ = await contents.change(kept.needed(), kept.owner, _id(request), lambda found: found.remove(item_id))
        return _answer(found.shown())

    @router.get("/v1/conversations/{conversation_id}/items")
    async def list_conversation_items(request: Request) -> Response:
        """List the items of a conversation, the newest first."""
        kept, paging = state.of(request.scope), paging_of(request.query_params)
        found = await contents.load(kept.needed(), kept.owner, _id(request))
        return _answer(*page_of(found.items, paging, request.query_params, kept.cipher))

    @router.post("/v1/conversations/{conversation_id}/items")
    async def create_conversation_items(request: Request) -> Response:
        """Add items to a conversation."""
        kept = state.of(request.scope)
        asked, items, replaced = await read_request(request, functools.partial(_parsed, ItemsRequest))
        _, added = await contents.change(
            kept.needed(), kept.owner, _id(request), lambda found: append(found.items, items)
        )
        include, left_out = included(request.query_params, kept.cipher)
        return _answer(list_of(added, include, kept.cipher), [*asked.ignored(), *left_out, *replaced])


def _add_conversations(router: APIRouter, state: ApplicationState) -> None:
    @router.post("/v1/conversations")
    async def create_conversation(request: Request) -> Response:
        """Begin a conversation."""
        kept = state.of(request.scope)
        asked, items, replaced = await read_request(request, functools.partial(_parsed, ConversationRequest))
        made = await contents.create(kept.needed(), kept.owner, asked.metadata, items)
        return _answer(made.shown(), [*asked.ignored(), *replaced])

    @router.get("/v1/conversations/{conversation_id}")
    async def retrieve_conversation(request: Request) -> Response:
        """Show a conversation without its items."""
        kept = state.of(request.scope)
        return _answer((await contents.load(kept.needed(), kept.owner, _id(request))).shown())

    @router.post("/v1/conversations/{conversation_id}")
    async def update_conversation(request: Request) -> Response:
        """Replace the metadata of a conversation."""
        kept = state.of(request.scope)
        asked, _, replaced = await read_request(request, functools.partial(_parsed, ConversationUpdate))
        metadata = asked.metadata or {}
        found, _ = await contents.change(
            kept.needed(), kept.owner, _id(request), lambda found: setattr(found, "metadata", metadata)
        )
        return _answer(found.shown(), [*asked.ignored(), *replaced])

    @router.delete("/v1/conversations/{conversation_id}")
    async def delete_conversation(request: Request) -> Response:
        """Delete a conversation with its items."""
        kept, gone = state.of(request.scope), _id(request)
        await contents.delete(kept.needed(), kept.owner, gone)
        return _answer({"id": gone, "object": "conversation.deleted", "deleted": True})


def _parsed(kind: type[Asked], body: RequestBody) -> tuple[Asked, StoredItems, Sequence[str]]:
    """The request, its items as they are stored, and paths of texts in which characters were replaced."""
    return *parse_conversation(kind, body.fields), body.replaced


def _id(request: Request) -> str:
    return str(request.path_params["conversation_id"])


def _item_id(request: Request) -> str:
    return str(request.path_params["item_id"])


def _answer(body: bytes | dict[str, Any], left_out: Sequence[str] = ()) -> Response:
    headers = name_header("x-ignored-parameters", list(dict.fromkeys(left_out)))
    content = body if isinstance(body, bytes) else write_client_json(body)
    return Response(content, headers=headers, media_type="application/json")
