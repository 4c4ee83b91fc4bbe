"""Verdicts on what an API promises, and how a check comes to one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from gateway.text.harmless import one_line

if TYPE_CHECKING:
    from gateway_ops.conformance.bounded_http import CheckRequest, HttpAnswer
    from gateway_ops.conformance.server_under_check import ServerUnderCheck

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
        evidence: what it says, as a clause.
        requests: that show it.
    """

    def __init__(self, evidence: str, *answers: HttpAnswer) -> None:
        super().__init__(evidence)
        self.evidence = evidence
        self.requests: tuple[CheckRequest, ...] = tuple(dict.fromkeys(answer.request for answer in answers))


class NotOfferedError(Exception):
    """Quotes the server where it rejects a parameter by name."""


class UnclearError(Exception):
    """Says why a promise cannot be judged."""


Body = Callable[["ServerUnderCheck"], None]
"""Returns where the promise is held, else raises one of the above."""


@dataclass(frozen=True, slots=True)
class Check:
    """One promise of the API, and how it is looked at.

    Attributes:
        name: of the check, unique.
        promise: what the API says, as a sentence.
        source: the page of the API's documentation.
        body: asks, and judges.
    """

    name: str
    promise: str
    source: str
    body: Body


@dataclass(frozen=True, slots=True)
class Group:
    """Checks that belong together.

    Attributes:
        title: of the group.
        checks: in the order in which they run.
    """

    title: str
    checks: list[Check] = field(default_factory=list)

    def check(self, name: str, promise: str, source: str) -> Callable[[Body], Body]:
        """Add a function as a check of this group."""

        def added(body: Body) -> Body:
            self.checks.append(Check(name, promise, source, body))
            return body

        return added


def shown(value: object, longest: int = _LONGEST) -> str:
    """Words of a server, as they can be printed: short, and without what a terminal would act upon."""
    text = value if isinstance(value, str) else repr(value)
    text = one_line(text[: longest + 1])
    return f"{text[:longest]}…" if len(text) > longest else text
