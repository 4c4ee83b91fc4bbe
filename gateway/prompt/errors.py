"""The room's exception."""

from __future__ import annotations


class TemplateError(Exception):
    """A chat template that is missing, does not compile or does not render these messages.

    Attributes:
        message: one sentence that may be shown to the caller.
        by_author: True when the message is the template author's own word to the caller (``raise_exception``), so the
            request is at fault; False when template and request do not fit for another reason.
        detail: the renderer's own words, for the log only.
        param: the part of the request at fault.
    """

    def __init__(self, message: str, *, by_author: bool = False, detail: str = "", param: str = "messages") -> None:
        super().__init__(message)
        self.message = message
        self.by_author = by_author
        self.detail = detail
        self.param = param
