"""References to items of stored responses, found by their ids alone: each names the response that it is of."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from gateway.bad_request import BadRequestError
from gateway.openai.responses.items import InputItem, ReferenceItem
from gateway.openai.responses.stored import Shelf

MOST_RESPONSES: Final = 1024
"""Responses that the references of one request may be to."""

MOST_BYTES: Final = 64 * 2**20
"""Bytes of these responses with their input that are read for one request."""

_OF_A_RESPONSE = re.compile(r"[a-z]{2,4}_([0-9a-f]{32})[0-9a-f]{4}")


def item_id(prefix: str, response_id: str, place: int) -> str:
    """The id of an item of a response's output.

    Args:
        prefix: tells its type.
        response_id: of the response.
        place: of the item in the output.
    """
    return f"{prefix}_{response_id.removeprefix('resp_')}{place:04x}"


def references(items: Sequence[InputItem]) -> dict[str, set[str]]:
    """The ids of items that a request refers to and does not bring, by the id of the response that they are of."""
    brought = {item.id for item in items if not isinstance(item, ReferenceItem)}
    found: dict[str, set[str]] = {}
    for item in items:
        if isinstance(item, ReferenceItem) and item.id not in brought and (named := _OF_A_RESPONSE.fullmatch(item.id)):
            found.setdefault(f"resp_{named[1]}", set()).add(item.id)
    return found


async def referred(shelf: Shelf, wanted: dict[str, set[str]]) -> dict[str, dict[str, Any]]:
    """Find items of stored responses; those that are not there are left out.

    Args:
        shelf: of the client.
        wanted: as ``references`` finds them.

    Raises:
        BadRequestError: they are of too many responses, or of too large ones.
        OpenAIError: 503 where the store cannot be used.
    """
    found: dict[str, dict[str, Any]] = {}
    size = 0
    for response_id, ids in wanted.items() if len(wanted) <= MOST_RESPONSES else ():
        stored = await shelf.find(response_id)
        if stored is not None:
            size += stored[0].size + len(stored[0].sent)
            found |= {item["id"]: item for item in stored[0].output() if item["id"] in ids}
        if size > MOST_BYTES:
            break
    if len(wanted) > MOST_RESPONSES or size > MOST_BYTES:
        message = f"The item references of a request may be to {MOST_RESPONSES} responses of {MOST_BYTES} bytes in all."
        raise BadRequestError(message, "input", "item_references_too_many")
    return found
