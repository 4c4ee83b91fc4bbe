"""The one exception of chat templates."""

from __future__ import annotations

from gateway.bad_request import BadRequestError


class TemplateError(BadRequestError):
    """A chat template that is missing, does not compile or does not render these messages.

    Attributes:
        by_author: True when the message is the template author's own word to the caller (``raise_exception``), so the
            request is at fault; False when template and request do not fit for another reason.
    """

    def __init__(self, message: str, *, by_author: bool = False, detail: str = "", param: str = "messages") -> None:
        super().__init__(message, param, "invalid_value", detail=detail)
        self.by_author = by_author
