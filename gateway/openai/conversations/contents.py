"""The contents of a conversation: one document, changed by compare-and-set, so that no writer undoes another's work."""

from __future__ import annotations

import asyncio
import functools
import random
import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import orjson

from gateway.bad_request import BadRequestError
from gateway.openai.conversations.objects import Conversation
from gateway.openai.errors import OpenAIError, from_store
from gateway.openai.items.stored import as_stored
from gateway.openai.repeated import repeated
from gateway.store import ConflictError, Store, StoreError

MOST_ITEMS = 4096
"""Items of one conversation."""

MOST_BYTES = 4 * 2**20
"""Bytes of one conversation as it is kept: JSON of its items and metadata."""

_ID = re.compile(r"conv_[0-9a-f]{32}")
_ATTEMPTS = 64
_LONGEST_PAUSE_S = 0.05
Result = TypeVar("Result")


@dataclass(slots=True)
class Contents:
    """A conversation. Its items stay JSON until they are looked at: most changes touch few of many.

    Attributes:
        id: of it.
        created_at: when it was made, in seconds since 1970.
        metadata: the client's own.
        ids: of its items, the oldest first.
        lines: the items, as ``as_stored`` makes them, as JSON.
        size: bytes of it as it was read; 0 where it is new.
    """

    id: str
    created_at: int
    metadata: Mapping[str, str]
    ids: list[str] = field(default_factory=list)
    lines: list[bytes] = field(default_factory=list)
    size: int = 0

    @staticmethod
    def read(conversation_id: str, data: bytes) -> Contents:
        """The opposite of ``written``."""
        head, *lines = data.split(b"\n")
        return Contents(conversation_id, **orjson.loads(head), lines=lines, size=len(data))

    def written(self) -> bytes:
        """The document: a line with all that is short, and one for each item."""
        head = {"created_at": self.created_at, "metadata": self.metadata, "ids": self.ids}
        return b"\n".join((repeated(head), *self.lines))

    def items(self) -> list[dict[str, Any]]:
        """All items, the oldest first. It takes the longer the larger they are."""
        return [orjson.loads(line) for line in self.lines]

    def shown(self) -> Conversation:
        """The ``conversation`` object."""
        return {
            "id": self.id,
            "object": "conversation",
            "created_at": self.created_at,
            "metadata": dict(self.metadata),
        }

    def add(self, items: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Put items behind those that are there; returns them as they are kept."""
        taken = set(self.ids)
        added = []
        for item in items:
            added.append(as_stored(item, taken))
            taken.add(added[-1]["id"])
        self.ids += [item["id"] for item in added]
        self.lines += [repeated(item) for item in added]
        return added

    def item(self, item_id: str) -> dict[str, Any]:
        """The item with this id.

        Raises:
            OpenAIError: 404 where there is none.
        """
        found: dict[str, Any] = orjson.loads(self.lines[self._place(item_id)])
        return found

    def remove(self, item_id: str) -> None:
        """Take an item out.

        Raises:
            OpenAIError: 404 where there is none.
        """
        place = self._place(item_id)
        del self.ids[place], self.lines[place]

    def _place(self, item_id: str) -> int:
        if item_id in self.ids:
            return self.ids.index(item_id)
        shown = item_id[:64].encode("ascii", "backslashreplace").decode()
        raise OpenAIError(404, f"Item with id {shown!r} not found in this conversation.", code="item_not_found")


def not_found(conversation_id: str, param: str | None = None) -> OpenAIError:
    """The answer where there is no such conversation, or it is another owner's."""
    shown = conversation_id[:64].encode("ascii", "backslashreplace").decode()
    return OpenAIError(404, f"Conversation with id {shown!r} not found.", param=param, code="conversation_not_found")


async def create(store: Store, owner: str, metadata: Mapping[str, str], items: Sequence[Mapping[str, Any]]) -> Contents:
    """Begin a conversation.

    Raises:
        BadRequestError: it is too large.
    """
    made = Contents(f"conv_{secrets.token_hex(16)}", int(time.time()), metadata)
    made.add(items)
    await _put(store, owner, made, 0)
    return made


async def load(store: Store, owner: str, conversation_id: str, param: str | None = None) -> Contents:
    """Read a conversation.

    Args:
        store: where it is.
        owner: who asks.
        conversation_id: as the client wrote it.
        param: of the request that has the id; None where it is in the path.

    Raises:
        OpenAIError: 404 where it is not there, or another owner's.
    """
    return (await _load(store, owner, conversation_id, param))[0]


async def change(
    store: Store, owner: str, conversation_id: str, edit: Callable[[Contents], Result], *, bounded: bool = True
) -> tuple[Contents, Result]:
    """Read, edit and write a conversation; again with what another writer has made of it meanwhile.

    Args:
        store: where it is.
        owner: who asks.
        conversation_id: as the client wrote it.
        edit: changes it in place; may be called several times, each time with new contents.
        bounded: whether it is refused where it would be too large.

    Raises:
        BadRequestError: it would be too large.
        OpenAIError: 404 as ``load``, 409 where others change it all the time.
    """
    for attempt in range(_ATTEMPTS):
        found, version = await _load(store, owner, conversation_id, None)
        result = edit(found)
        try:
            await _put(store, owner, found, version, bounded=bounded)
        except ConflictError:
            # Until the others are done; by chance, or two of them would meet again and again.
            await asyncio.sleep(random.uniform(0, min(_LONGEST_PAUSE_S, 0.001 * 2**attempt)))  # noqa: S311
            continue
        return found, result
    message = "Others change this conversation at the same time; try again in a moment."
    raise OpenAIError(409, message, code="conversation_locked")


async def delete(store: Store, owner: str, conversation_id: str) -> None:
    """Forget a conversation and its items.

    Raises:
        OpenAIError: 404 as ``load``.
    """
    if not (_ID.fullmatch(conversation_id) and await store.delete(owner, conversation_id)):
        raise not_found(conversation_id)


async def _load(store: Store, owner: str, conversation_id: str, param: str | None) -> tuple[Contents, int]:
    found = await store.get(owner, conversation_id) if _ID.fullmatch(conversation_id) else None
    if found is None:
        raise not_found(conversation_id, param)
    return Contents.read(conversation_id, found.data), found.version


async def _put(store: Store, owner: str, contents: Contents, expected: int, *, bounded: bool = True) -> None:
    data = contents.written()
    if bounded:
        check_room(len(contents.ids), len(data), "items")
    await store.put(owner, contents.id, data, expected=expected)


def check_room(count: int, size: int, param: str) -> None:
    """Refuse to make a conversation too large.

    Args:
        count: of its items.
        size: bytes of it.
        param: of the request that brings more of them.

    Raises:
        BadRequestError: it would be.
    """
    if count > MOST_ITEMS or size > MOST_BYTES:
        most = f"{MOST_ITEMS} items and {MOST_BYTES} bytes"
        message = f"A conversation may have {most}; with these items it would have {count} and {size}."
        raise BadRequestError(message, param, "conversation_too_large")


@dataclass(frozen=True, slots=True)
class ConversationEnd:
    """The end of a conversation, where a response puts its input and its output.

    Attributes:
        store: where the conversation is.
        owner: whose it is.
        id: of it.
    """

    store: Store
    owner: str
    id: str

    async def append(self, items: Sequence[Mapping[str, Any]]) -> None:
        """Put items behind those that are there, all or none, to the end also where the caller is cancelled meanwhile.

        They are taken where they make the conversation too large: it had room when the response began.

        Raises:
            OpenAIError: 404 where it is gone, 409 where others change it all the time, 503 where the store cannot be
                used.
        """
        task = asyncio.create_task(self._append(items))
        _writing.add(task)
        task.add_done_callback(_forget)
        await asyncio.shield(task)

    async def _append(self, items: Sequence[Mapping[str, Any]]) -> None:
        add = functools.partial(Contents.add, items=items)
        try:
            await change(self.store, self.owner, self.id, add, bounded=False)
        except StoreError as error:
            raise from_store(error) from None


_writing: set[asyncio.Task[None]] = set()  # a task that nobody holds may vanish


def _forget(task: asyncio.Task[None]) -> None:
    _writing.discard(task)
    if not task.cancelled():
        task.exception()  # which was told where somebody waited for it
