"""Checks of the API's promises, in groups."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from gateway_ops.conformance.server_under_check import ServerUnderCheck

Body = Callable[[ServerUnderCheck], None]
"""Returns where the promise is held, else raises an error of ``verdicts``."""


@dataclass(frozen=True, slots=True)
class Check:
    """One promise of the API, and its check.

    Attributes:
        name: unique name of the check.
        promise: the promise as a sentence.
        source: the page of the API's documentation.
        body: sends requests, and raises the verdict.
    """

    name: str
    promise: str
    source: str
    body: Body


@dataclass(frozen=True, slots=True)
class Group:
    """A group of checks.

    Attributes:
        title: title of the group.
        checks: in the order in which they run.
    """

    title: str
    checks: list[Check] = field(default_factory=list)

    def check(self, name: str, promise: str, source: str) -> Callable[[Body], Body]:
        """Add a function as a check to the group."""

        def added(body: Body) -> Body:
            self.checks.append(Check(name, promise, source, body))
            return body

        return added
