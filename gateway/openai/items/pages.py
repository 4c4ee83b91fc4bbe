"""Pages of a list of items, by OpenAI's parameters of the URL: ``order``, ``limit``, ``after`` and ``include``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from starlette.datastructures import QueryParams
from typing_extensions import TypedDict

from gateway.bad_request import BadRequestError
from gateway.openai.items.stored import LOGPROBS, SEALED, shown
from gateway.openai.router import parameter
from gateway.sealing import Seal

_MOST = 100
_MOST_INCLUDED = 64

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
    """Read the parameters of the URL.

    Raises:
        BadRequestError: naming the one at fault.
    """
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


def page_of(
    ids: Sequence[str],
    item_of: Callable[[str], dict[str, Any]],
    paging: Paging,
    include: frozenset[str] = frozenset(),
    seal: Seal | None = None,
) -> ItemPage:
    """The page.

    Args:
        ids: of all items of the list, the oldest first.
        item_of: the item with an id; called for those of the page.
        paging: the page that is asked for.
        include: what its items have besides.
        seal: of the owner.

    Raises:
        BadRequestError: there is no item ``after``.
    """
    ordered = ids[::-1] if paging.newest_first else ids
    if paging.after is not None and paging.after not in ordered:
        message = "Invalid value for 'after': there is no item with this id in the list."
        raise BadRequestError(message, "after", "invalid_value")
    start = 0 if paging.after is None else ordered.index(paging.after) + 1
    end = start + paging.limit
    page = [shown(item_of(each), include, seal) for each in ordered[start:end]]
    return list_of(page, more=len(ordered) > end)


def list_of(items: list[dict[str, Any]], *, more: bool = False) -> ItemPage:
    """A list of items as they are shown."""
    first, last = (items[0]["id"], items[-1]["id"]) if items else (None, None)
    return {"object": "list", "data": items, "first_id": first, "last_id": last, "has_more": more}
