"""Defines the exception of a rejected request, with OpenAI's error fields, and shortens texts that errors repeat."""

from __future__ import annotations


class BadRequestError(Exception):
    """A request that cannot be served as asked; it is answered with status 400.

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
