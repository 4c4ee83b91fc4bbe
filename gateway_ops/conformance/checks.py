"""Checks of what an API promises, in groups."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from gateway_ops.conformance.server_under_check import ServerUnderCheck

Body = Callable[[ServerUnderCheck], None]
"""Returns where the promise is held, else raises an error of ``verdicts``."""


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
