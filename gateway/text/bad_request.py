"""Defines the exception of a rejected request, with OpenAI's error fields, and shortens texts that errors repeat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

_Item = TypeVar("_Item")


class BadRequestError(Exception):
    """A request that cannot be served as asked; it is rejected with status 400.

    Attributes:
        message: one sentence for the client.
        param: path of the request parameter at fault, such as ``messages[0].content``; None for several.
        code: OpenAI's error code, None where it has none.
        detail: words of a library or of a template's author, for the log only.
    """

    def __init__(self, message: str, param: str | None = None, code: str | None = None, *, detail: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code
        self.detail = detail


def printable(text: str, most: int = 64) -> str:
    """A text of a client's as an error may repeat it: ASCII, and the beginning of it only.

    Args:
        text: the client's.
        most: characters of it.
    """
    return text[:most].encode("ascii", "backslashreplace").decode()


def first_of(items: Sequence[_Item], most: int = 20) -> tuple[Sequence[_Item], str]:
    """The first items, and how many more there are, as in ``and 3 more``; empty where there are no more.

    Args:
        items: all of them.
        most: that are named.
    """
    more = len(items) - most
    return items[:most], f"and {more} more" if more > 0 else ""
