"""Types of the answers of ``/v1/conversations``."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict


class Conversation(TypedDict):
    """A conversation, whose items are a list of their own."""

    id: str
    object: Literal["conversation"]
    created_at: int
    metadata: dict[str, str]


class ConversationDeleted(TypedDict):
    """A conversation that is no longer there."""

    id: str
    object: Literal["conversation.deleted"]
    deleted: Literal[True]
