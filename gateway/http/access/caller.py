"""The caller of a request: named by a key or a token, with its models and limits."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from gateway.settings import KeyLimits

NO_LIMITS: Final = KeyLimits()


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request.

    Attributes:
        id: unique among all callers, such as ``key:alice`` or ``jwt:alice``; empty for those without a name.
        name: for the log and the metrics; empty where the key has none, and where no keys are asked for.
        models: names and aliases of models that it may use; None for all.
        limits: what it may ask for.
        weight: of its share where models have more requests than room.
    """

    id: str = ""
    name: str = ""
    models: frozenset[str] | None = None
    limits: KeyLimits = NO_LIMITS
    weight: float = 1.0

    def may_use(self, names: Iterable[str]) -> bool:
        """Whether it may use a model that has these names."""
        return self.models is None or not self.models.isdisjoint(names)


ANONYMOUS: Final = Caller()
"""One without a name: of a gateway without keys, or with an unnamed one."""

_CALLER: ContextVar[Caller] = ContextVar("caller", default=ANONYMOUS)


caller: Final[Callable[[], Caller]] = _CALLER.get
"""The sender of the request that the running task, or a thread that works for it, serves."""


def enter(who: Caller) -> None:
    """Let the running task, and all that it starts, serve a caller."""
    _CALLER.set(who)
