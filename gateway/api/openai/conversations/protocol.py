"""The requests of ``/v1/conversations``: their schemas and their validation."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import Field

from gateway.api.openai.conversations.contents import MOST_ITEMS
from gateway.api.openai.responses.input_items import InputItem, ReferenceItem
from gateway.api.openai.stored_items import StoredItems, stored_items
from gateway.api.openai.validation import RequestPart, validated
from gateway.text.bad_request import BadRequestError

_Items = Annotated[list[InputItem], Field(max_length=MOST_ITEMS, fail_fast=True)]
_Metadata = Annotated[
    dict[Annotated[str, Field(min_length=1, max_length=64)], Annotated[str, Field(max_length=512)]],
    Field(max_length=16),
]


class _Request(RequestPart):
    def ignored(self) -> list[str]:
        """The names of fields that the request is served without."""
        return list(self.model_extra or ())


class ConversationRequest(_Request):
    """A request for a new conversation."""

    items: _Items = Field(default_factory=list, description="The first items of the conversation.")
    metadata: _Metadata = Field(default_factory=dict, description="Up to 16 key-value pairs of strings.")


class ConversationUpdate(_Request):
    """A request that replaces the metadata of a conversation; null removes them."""

    metadata: _Metadata | None = Field(description="Replaces all existing metadata.")


class ItemsRequest(_Request):
    """A request for more items of a conversation."""

    items: Annotated[_Items, Field(min_length=1)] = Field(description="The items to append to the conversation.")


Asked = TypeVar("Asked", bound=_Request)


def parse_conversation(kind: type[Asked], fields: dict[str, Any]) -> tuple[Asked, StoredItems]:
    """Parse and validate a request body; returns the request, and its items in stored form.

    Raises:
        BadRequestError: naming the parameter at fault.
    """
    data = fields
    if kind is not ConversationUpdate:
        data = {key: value for key, value in data.items() if value is not None}
    asked = validated(kind, data)
    for index, item in enumerate(getattr(asked, "items", ())):
        if isinstance(item, ReferenceItem):
            message = f"A conversation cannot contain item references: send the item itself as 'items[{index}]'."
            raise BadRequestError(message, f"items[{index}]", "invalid_value")
    return asked, stored_items(data.get("items", ()) if kind is not ConversationUpdate else ())
