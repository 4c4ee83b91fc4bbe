"""Verdicts on what an API promises, and the errors by which a check comes to one."""

from __future__ import annotations

from enum import Enum

from gateway.text.harmless import one_line
from gateway_ops.conformance.bounded_http import CheckRequest, HttpAnswer

_LONGEST = 120


class Verdict(str, Enum):
    """The outcome of a check."""

    UNTRUE = "untrue"  # a response shows that the promise is not held
    UNCLEAR = "cannot tell"  # no response shows either
    NOT_OFFERED = "not offered"  # the server rejects the parameter by name, which is honest
    TRUE = "true"


class UntrueError(Exception):
    """A response that is against the promise.

    Attributes:
        requests: that show it.
    """

    def __init__(self, evidence: str, *answers: HttpAnswer) -> None:
        super().__init__(evidence)
        self.requests: tuple[CheckRequest, ...] = tuple(dict.fromkeys(answer.request for answer in answers))


class NotOfferedError(Exception):
    """Quotes the server where it rejects a parameter by name."""


class UnclearError(Exception):
    """Says why a promise cannot be judged."""


def shown(value: object, longest: int = _LONGEST) -> str:
    """Words of a server, as they can be printed: short, and without what a terminal would act upon."""
    text = value if isinstance(value, str) else repr(value)
    text = one_line(text[: longest + 1])
    return f"{text[:longest]}…" if len(text) > longest else text
