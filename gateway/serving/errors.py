"""Refusals of serving, before an engine is asked."""

from __future__ import annotations


class RefusedError(Exception):
    """A request that this model cannot serve as asked.

    Attributes:
        message: one sentence for the client.
        param: the request parameter at fault.
        code: OpenAI's error code, None where it has none.
    """

    def __init__(self, message: str, param: str, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code
