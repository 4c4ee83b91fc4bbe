"""Pages of a list of items, by OpenAI's parameters of the URL: ``order``, ``limit``, ``after`` and ``include``."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Final, Literal

import orjson
from starlette.datastructures import QueryParams
from typing_extensions import TypedDict

from gateway.bad_request import BadRequestError
from gateway.openai.items.kept import LOGPROBS, SEALED, ItemLines, shown_line
from gateway.openai.router import parameter
from gateway.sealing import Seal

_MOST = 100
_MOST_INCLUDED = 64
_LARGE = 65536  # bytes of an item

INCLUDE: Final = parameter("include", "query", f"`{LOGPROBS}` and `{SEALED}` are served.")
"""The OpenAPI entry of ``include``, which may be given several times, also as ``include[]``."""

PAGING: Final = (
    parameter("order", "query", "`asc` or, if absent, `desc`."),
    parameter("limit", "query", "Items of a page: 1 to 100, 20 if absent."),
    parameter("after", "query", "Id of the item before the page."),
    INCLUDE,
)
"""The OpenAPI entries of the parameters of a list."""


class ItemPage(TypedDict):
    """A page of a list of items. The ids of its first and last one are null where it is empty."""

    object: Literal["list"]
    data: list[dict[str, Any]]
    first_id: str | None
    last_id: str | None
    has_more: bool


@dataclass(frozen=True, slots=True)
class Paging:
    """A page that is asked for.

    Attributes:
        newest_first: the order.
        limit: most items of it.
        after: id of the item before it; None: it is the first page.
    """

    newest_first: bool
    limit: int
    after: str | None


def paging_of(query: QueryParams) -> Paging:
    """Read the page that the parameters of the URL ask for.

    Raises:
        BadRequestError: naming the one at fault.
    """
    if "before" in query:
        message = "The parameter 'before' is not supported: ask for the other 'order', and go on by 'after'."
        raise BadRequestError(message, "before", "unsupported_parameter")
    order, limit = query.get("order", "desc"), query.get("limit", "20")
    if order not in ("asc", "desc"):
        raise BadRequestError("Invalid value for 'order': it must be 'asc' or 'desc'.", "order", "invalid_value")
    if not (limit.isascii() and limit.isdecimal() and len(limit) <= 3 and 1 <= int(limit) <= _MOST):
        message = f"Invalid value for 'limit': it must be an integer from 1 to {_MOST}."
        raise BadRequestError(message, "limit", "invalid_value")
    return Paging(order == "desc", int(limit), query.get("after"))


def included(query: QueryParams, seal: Seal | None) -> tuple[frozenset[str], list[str]]:
    """What ``include`` asks for, and the names of those of its values that are not served."""
    values = [*query.getlist("include"), *query.getlist("include[]")][:_MOST_INCLUDED]
    served = {LOGPROBS} | ({SEALED} if seal is not None else set())
    return frozenset(values), [f"include.{value}" for value in dict.fromkeys(values) if value not in served]


async def page_of(items: ItemLines, paging: Paging, query: QueryParams, seal: Seal | None) -> tuple[bytes, list[str]]:
    """Write the page that the parameters of the URL ask for.

    Args:
        items: the whole list.
        paging: of the page.
        query: of the URL, for `include`.
        seal: of the owner.

    Returns:
        An ``ItemPage`` as JSON, and the names of what is not served of ``include``.

    Raises:
        BadRequestError: there is no item ``after``.
    """
    include, left_out = included(query, seal)
    places = range(len(items.ids))[:: -1 if paging.newest_first else 1]
    start = 0
    if paging.after is not None:
        if paging.after not in items.ids:
            message = "Invalid value for 'after': there is no item with this id in the list."
            raise BadRequestError(message, "after", "invalid_value")
        start = places.index(items.ids.index(paging.after)) + 1
    page = places[start : start + paging.limit]
    return await list_of(items.part(page), include, seal, more=len(places) > start + paging.limit), left_out


async def list_of(items: ItemLines, include: frozenset[str], seal: Seal | None, *, more: bool = False) -> bytes:
    """Write a list of items as they are shown; see ``page_of``. Between large ones others have their turn."""
    lines = []
    for line in items.lines:
        if len(line) > _LARGE:
            await asyncio.sleep(0)
        lines.append(shown_line(line, include, seal))
    ends = {"first_id": items.ids[0] if lines else None, "last_id": items.ids[-1] if lines else None}
    return b'{"object":"list","data":[%b],%b' % (b",".join(lines), orjson.dumps({**ends, "has_more": more})[1:])
