"""The error of a rejected request, and shortened texts for its message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

_Item = TypeVar("_Item")


class BadRequestError(Exception):
    """A rejected request, with status 400.

    Attributes:
        message: one sentence for the client.
        param: path of the request parameter at fault, such as ``messages[0].content``; None for several.
        code: OpenAI's error code, None where it has none.
        detail: text of a library or of a template's author, for the log only.
    """

    def __init__(self, message: str, param: str | None = None, code: str | None = None, *, detail: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code
        self.detail = detail


def printable(text: str, limit: int = 64) -> str:
    """Shorten a client's text for an error: the beginning of it, in ASCII.

    Args:
        text: the client's text.
        limit: most characters.
    """
    return text[:limit].encode("ascii", "backslashreplace").decode()


def first_of(items: Sequence[_Item], limit: int = 20) -> tuple[Sequence[_Item], str]:
    """Join the first items, with the number of the others, such as ``and 3 more``.

    Args:
        items: all items.
        limit: most items to name.
    """
    more = len(items) - limit
    return items[:limit], f"and {more} more" if more > 0 else ""
