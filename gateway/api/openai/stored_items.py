"""Items of responses and conversations in stored form, with ids, statuses and parts; and lists of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import jiter
from starlette.datastructures import QueryParams

from gateway.api.openai.encryption import OwnerCipher
from gateway.generation.ids import new_id
from gateway.text.bad_request import BadRequestError
from gateway.text.client_json import write_client_json

LOGPROBS = "message.output_text.logprobs"
"""The value of ``include`` that requests log-probs."""

ENCRYPTED = "reasoning.encrypted_content"
"""The value of ``include`` that requests encrypted reasoning."""

_PREFIXES = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
    "compaction": "cmp",
}
_LONGEST_ID = 128
_WHOLE = frozenset({"message", "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output"})
"""Types of items that OpenAI lists with a status."""
_STATUSES = frozenset({"in_progress", "completed", "incomplete"})

_MOST_LISTED = 100  # items of a page
_MOST_INCLUDED = 64


def as_stored(item: Mapping[str, Any], taken: Collection[str] = ()) -> dict[str, Any]:
    """Convert an item of a checked request to its stored form.

    Args:
        item: the client's item.
        taken: ids of other items; an item with one of these gets a new id.
    """
    kind = "message" if item.get("type") is None else item["type"]  # an empty string is an unknown type
    given = item.get("id")
    own = isinstance(given, str) and 0 < len(given) <= _LONGEST_ID and given not in taken
    kept: dict[str, Any] = {"id": given if own else f"{_PREFIXES.get(kind, 'item')}_{new_id()}", "type": kind}
    if kind in _WHOLE:
        status = item.get("status")
        kept["status"] = status if isinstance(status, str) and status in _STATUSES else "completed"
    kept |= {key: value for key, value in item.items() if key not in {"id", "type", "status"}}
    if kind == "message":
        kept["content"] = _parts(item["role"], item.get("content"))
    elif kind == "reasoning":
        kept["summary"] = item.get("summary") or []
    elif kind.endswith("_call_output"):
        kept["output"] = item.get("output") or ""
    return kept


def shown(item: Mapping[str, Any], include: Collection[str], cipher: OwnerCipher | None) -> dict[str, Any]:
    """Convert a stored item to the form in which it is listed.

    Args:
        item: as it was stored.
        include: values of ``include``; without them log-probs and encrypted reasoning are left out.
        cipher: the owner's cipher.
    """
    listed = dict(item)
    if item["type"] == "reasoning":
        encrypted = listed.pop("encrypted_content", None)
        if ENCRYPTED in include and (encrypted is not None or cipher is not None):
            listed["encrypted_content"] = encrypted or _encrypted(item, cipher)
    elif item["type"] == "message" and LOGPROBS not in include:
        listed["content"] = [{**part, "logprobs": []} if part.get("logprobs") else part for part in item["content"]]
    return listed


def text_of(parts: Any) -> str:
    """Join the texts of content parts as lines; empty without readable parts."""
    texts = [part.get("text") for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
    return "\n".join(text for text in texts if isinstance(text, str) and text)


def _encrypted(item: Mapping[str, Any], cipher: OwnerCipher | None) -> str | None:
    text = text_of(item.get("content"))
    return cipher.encrypt("reasoning", text) if cipher is not None and text else None


def _parts(role: str, content: Any) -> list[dict[str, Any]]:
    said = role == "assistant"
    if isinstance(content, str):
        content = [{"type": "output_text" if said else "input_text", "text": content}]
    lists: dict[str, Any] = {"annotations": [], "logprobs": []}
    return [lists | part if part["type"] == "output_text" else dict(part) for part in content or ()]


StoredItems = dict[str, bytes]
"""Items by their ids, the oldest first, as JSON: most are passed on, and few are looked at."""


def stored_items(items: Iterable[Mapping[str, Any]]) -> StoredItems:
    """Convert items of a checked request, or of a response, to their stored form."""
    made: StoredItems = {}
    for item in items:
        kept = as_stored(item, made)
        made[kept["id"]] = write_client_json(kept)
    return made


def append(items: StoredItems, others: StoredItems) -> StoredItems:
    """Append items to others; returns the appended items, where an item whose id is taken gets a new id."""
    added: StoredItems = {}
    for name, line in others.items():
        if name in items:
            added |= stored_items([{**jiter.from_json(line), "id": None}])
        else:
            added[name] = line
    items |= added
    return added


@dataclass(frozen=True, slots=True)
class Paging:
    """The page of a list that a request asks for.

    Attributes:
        newest_first: the order.
        limit: most items of it.
        after: id of the item before it; None: it is the first page.
    """

    newest_first: bool
    limit: int
    after: str | None


def paging_of(query: QueryParams) -> Paging:
    """Read the page that the URL's parameters ask for.

    Raises:
        BadRequestError: naming the one at fault.
    """
    if "before" in query:
        message = "The parameter 'before' is not supported; send the opposite 'order' and use 'after'."
        raise BadRequestError(message, "before", "unsupported_parameter")
    order, limit = query.get("order", "desc"), query.get("limit", "20")
    if order not in ("asc", "desc"):
        raise BadRequestError("Invalid value for 'order': must be 'asc' or 'desc'.", "order", "invalid_value")
    if not (limit.isascii() and limit.isdecimal() and len(limit) <= 3 and 1 <= int(limit) <= _MOST_LISTED):
        message = f"Invalid value for 'limit': must be an integer from 1 to {_MOST_LISTED}."
        raise BadRequestError(message, "limit", "invalid_value")
    return Paging(order == "desc", int(limit), query.get("after"))


def included(query: QueryParams, cipher: OwnerCipher | None) -> tuple[frozenset[str], list[str]]:
    """Read ``include``; returns its values, and the names of values that are not served."""
    values = [*query.getlist("include"), *query.getlist("include[]")][:_MOST_INCLUDED]
    served = {LOGPROBS} | ({ENCRYPTED} if cipher is not None else set())
    return frozenset(values), [f"include.{value}" for value in dict.fromkeys(values) if value not in served]


def page_of(
    items: StoredItems, paging: Paging, query: QueryParams, cipher: OwnerCipher | None
) -> tuple[bytes, list[str]]:
    """Write the page of a list that the request asks for.

    Args:
        items: the whole list.
        paging: of the page.
        query: of the URL, for `include`.
        cipher: of the owner.

    Returns:
        The page as JSON, and the names of values of ``include`` that are not served.

    Raises:
        BadRequestError: the item ``after`` does not exist.
    """
    include, left_out = included(query, cipher)
    names = list(items)[:: -1 if paging.newest_first else 1]
    start = 0
    if paging.after is not None:
        if paging.after not in items:
            message = "Invalid value for 'after': the list has no item with this id."
            raise BadRequestError(message, "after", "invalid_value")
        start = names.index(paging.after) + 1
    page = {name: items[name] for name in names[start : start + paging.limit]}
    return list_of(page, include, cipher, more=len(names) > start + paging.limit), left_out


def list_of(items: StoredItems, include: frozenset[str], cipher: OwnerCipher | None, *, more: bool = False) -> bytes:
    """Write a list of items in the form in which they are listed; see ``page_of``."""
    page = {
        "object": "list",
        "data": [shown(jiter.from_json(line), include, cipher) for line in items.values()],
        "first_id": next(iter(items), None),
        "last_id": next(reversed(items), None),
        "has_more": more,
    }
    return write_client_json(page)
