"""Stored conversations: one document each, changed by compare-and-set so that no concurrent write is lost."""

from __future__ import annotations

import asyncio
import json
import random
import re
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import jiter

from gateway.api.openai.errors import OpenAIError
from gateway.api.openai.stored_items import StoredItems, append
from gateway.serving.store import ConflictError, DocumentWrite, Store
from gateway.text.bad_request import BadRequestError, printable
from gateway.text.client_json import write_client_json

MOST_ITEMS = 4096
"""Items of one conversation."""

MOST_BYTES = 4 * 2**20
"""Bytes of one conversation as it is kept: JSON of its items and metadata."""

_ID = re.compile(r"conv_[0-9a-f]{32}")
_ATTEMPTS = 64
_LONGEST_PAUSE_S = 0.05
Result = TypeVar("Result")


@dataclass(slots=True)
class ConversationContents:
    """A conversation with its items.

    Attributes:
        id: the conversation's id.
        created_at: time of creation, in seconds since 1970.
        metadata: the client's annotations.
        items: the items, the oldest first.
        size: bytes of the document as it was read; 0 for a new conversation.
    """

    id: str
    created_at: int
    metadata: Mapping[str, str]
    items: StoredItems = field(default_factory=dict)
    size: int = 0

    @staticmethod
    def read(conversation_id: str, data: bytes) -> ConversationContents:
        """Parse a document that ``written`` made."""
        head, *lines = data.split(b"\n")
        fields = json.loads(head)
        items = dict(zip(fields.pop("ids"), lines, strict=True))
        return ConversationContents(conversation_id, **fields, items=items, size=len(data))

    def written(self) -> bytes:
        """Write the document: a line with the short fields, and a line for each item."""
        head = {"created_at": self.created_at, "metadata": self.metadata, "ids": list(self.items)}
        return b"\n".join((write_client_json(head), *self.items.values()))

    def shown(self) -> dict[str, Any]:
        """Make the ``conversation`` object."""
        return {
            "id": self.id,
            "object": "conversation",
            "created_at": self.created_at,
            "metadata": dict(self.metadata),
        }

    def item(self, item_id: str) -> dict[str, Any]:
        """Find the item with an id.

        Raises:
            OpenAIError: 404 where there is none.
        """
        self._check(item_id)
        found: dict[str, Any] = jiter.from_json(self.items[item_id])
        return found

    def remove(self, item_id: str) -> None:
        """Remove an item.

        Raises:
            OpenAIError: 404 where there is none.
        """
        self._check(item_id)
        del self.items[item_id]

    def _check(self, item_id: str) -> None:
        if item_id not in self.items:
            shown = printable(item_id)
            raise OpenAIError(404, f"Item with id {shown!r} not found in this conversation.", code="item_not_found")


def not_found(conversation_id: str, param: str | None = None) -> OpenAIError:
    """Make the error for a conversation that does not exist or is another owner's."""
    shown = printable(conversation_id)
    return OpenAIError(404, f"Conversation with id {shown!r} not found.", param=param, code="conversation_not_found")


async def create(store: Store, owner: str, metadata: Mapping[str, str], items: StoredItems) -> ConversationContents:
    """Store a new conversation.

    Raises:
        BadRequestError: it is too large.
    """
    made = ConversationContents(f"conv_{secrets.token_hex(16)}", int(time.time()), metadata, items)
    data = made.written()
    check_room(len(items), len(data), "items")
    await store.put(owner, made.id, data, expected=0)
    return made


async def load(store: Store, owner: str, conversation_id: str, param: str | None = None) -> ConversationContents:
    """Read a conversation.

    Args:
        store: where it is.
        owner: the caller.
        conversation_id: as the client wrote it.
        param: of the request that has the id; None where it is in the path.

    Raises:
        OpenAIError: 404 where the conversation does not exist or is another owner's.
    """
    return (await _load(store, owner, conversation_id, param))[0]


async def change(
    store: Store,
    owner: str,
    conversation_id: str,
    edit: Callable[[ConversationContents], Result],
    also: DocumentWrite | None = None,
) -> tuple[ConversationContents, Result]:
    """Read, edit and write a conversation, and repeat that after a concurrent write.

    Args:
        store: where it is.
        owner: the caller.
        conversation_id: as the client wrote it.
        edit: changes it in place; may be called several times, each time with new contents.
        also: another document that is written with the conversation, both or neither. Then no size is checked.

    Raises:
        BadRequestError: the conversation would be too large.
        ConflictError: the other document has another version.
        OpenAIError: 404 as ``load``, 409 while other writers keep changing the conversation.
    """
    for attempt in range(_ATTEMPTS):
        found, version = await _load(store, owner, conversation_id, None)
        result = edit(found)
        data = found.written()
        if also is None:
            check_room(len(found.items), len(data), "items")
        try:
            await store.put_all(owner, [DocumentWrite(found.id, data, version), *([also] if also else [])])
        except ConflictError as error:
            if error.key != found.id:
                raise
            # Lets concurrent writers finish; the random time keeps two of them from colliding repeatedly.
            await asyncio.sleep(random.uniform(0, min(_LONGEST_PAUSE_S, 0.001 * 2**attempt)))  # noqa: S311
            continue
        return found, result
    message = "Other requests are changing this conversation at the same time; try again in a moment."
    raise OpenAIError(409, message, code="conversation_locked")


async def delete(store: Store, owner: str, conversation_id: str) -> None:
    """Delete a conversation with its items.

    Raises:
        OpenAIError: 404 as ``load``.
    """
    if not (_ID.fullmatch(conversation_id) and await store.delete(owner, conversation_id)):
        raise not_found(conversation_id)


async def _load(store: Store, owner: str, conversation_id: str, param: str | None) -> tuple[ConversationContents, int]:
    found = await store.get(owner, conversation_id) if _ID.fullmatch(conversation_id) else None
    if found is None:
        raise not_found(conversation_id, param)
    return ConversationContents.read(conversation_id, found.data), found.version


def check_room(count: int, size: int, param: str) -> None:
    """Reject items that would make a conversation too large.

    Args:
        count: items that the conversation would have.
        size: bytes that the conversation would have.
        param: the request's parameter that brings more items.

    Raises:
        BadRequestError: the conversation would be too large.
    """
    if count > MOST_ITEMS or size > MOST_BYTES:
        most = f"{MOST_ITEMS} items and {MOST_BYTES} bytes"
        message = (
            f"A conversation may have at most {most}, but would have {count} items and {size} bytes with these items."
        )
        raise BadRequestError(message, param, "conversation_too_large")


@dataclass(frozen=True, slots=True)
class ConversationEnd:
    """The end of a conversation, where a response appends its input and output.

    Attributes:
        store: where the conversation is.
        owner: the conversation's owner.
        id: the conversation's id.
    """

    store: Store
    owner: str
    id: str

    async def append(self, items: StoredItems, also: DocumentWrite) -> None:
        """Append items, and write another document with them, both or neither.

        Items that make the conversation too large are accepted: it had room when the response began.

        Raises:
            OpenAIError: 404 where it is gone, 409 where others change it all the time.
            StoreError: of the store; ConflictError, where the other document has another version.
        """
        await change(self.store, self.owner, self.id, lambda found: append(found.items, items), also)
