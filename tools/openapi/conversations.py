"""Types of the responses about conversations and stored items."""

from __future__ import annotations

from typing import Any, Literal

from typing_extensions import TypedDict


class Conversation(TypedDict):
    """A conversation, whose items are a list of their own."""

    id: str
    object: Literal["conversation"]
    created_at: int
    metadata: dict[str, str]


class ConversationDeleted(TypedDict):
    """A deleted conversation."""

    id: str
    object: Literal["conversation.deleted"]
    deleted: Literal[True]


class ItemPage(TypedDict):
    """A page of a list of items. The ids of its first and last one are null where it is empty."""

    object: Literal["list"]
    data: list[dict[str, Any]]
    first_id: str | None
    last_id: str | None
    has_more: bool
