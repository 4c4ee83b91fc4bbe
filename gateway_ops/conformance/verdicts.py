"""Verdicts on promises of the API, and the errors with which checks report them."""

from __future__ import annotations

from enum import Enum

from gateway.text.harmless import one_line
from gateway_ops.conformance.bounded_http import CheckRequest, HttpAnswer

_LONGEST = 120


class Verdict(str, Enum):
    """The verdict of a check."""

    UNTRUE = "untrue"  # a response shows that the promise is not held
    UNCLEAR = "cannot tell"  # no response shows either
    NOT_OFFERED = "not offered"  # the server rejects the parameter by name, which is honest
    TRUE = "true"


class UntrueError(Exception):
    """A response breaks the promise.

    Attributes:
        requests: requests that show it.
    """

    def __init__(self, evidence: str, *answers: HttpAnswer) -> None:
        super().__init__(evidence)
        self.requests: tuple[CheckRequest, ...] = tuple(dict.fromkeys(answer.request for answer in answers))


class NotOfferedError(Exception):
    """The server rejects a parameter by name; the message quotes it."""


class UnclearError(Exception):
    """A promise cannot be checked; the message says why."""


def shown(value: object, longest: int = _LONGEST) -> str:
    """Shorten a server's text and escape control characters, for printing."""
    text = value if isinstance(value, str) else repr(value)
    text = one_line(text[: longest + 1])
    return f"{text[:longest]}…" if len(text) > longest else text
