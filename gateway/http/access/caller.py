"""The caller of a request: its name, models and limits, by its key or token."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from gateway.settings import KeyLimits

NO_LIMITS: Final = KeyLimits()


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a request.

    Attributes:
        id: unique among all callers, such as ``key:alice`` or ``jwt:alice``; empty without a name.
        name: name for log and metrics; empty where the key has none, and without keys.
        models: names and aliases of models that the caller may use; None for all.
        limits: the caller's limits.
        weight: weight of the caller's share of a busy model.
    """

    id: str = ""
    name: str = ""
    models: frozenset[str] | None = None
    limits: KeyLimits = NO_LIMITS
    weight: float = 1.0

    def may_use(self, names: Iterable[str]) -> bool:
        """Tell whether the caller may use a model with these names."""
        return self.models is None or not self.models.isdisjoint(names)


ANONYMOUS: Final = Caller()
"""One without a name: of a gateway without keys, or with an unnamed one."""

_CALLER: ContextVar[Caller] = ContextVar("caller", default=ANONYMOUS)


caller: Final[Callable[[], Caller]] = _CALLER.get
"""The sender of the request that the running task, or a thread that works for it, serves."""


def enter(caller: Caller) -> None:
    """Set the caller of the running task and of all tasks that it starts."""
    _CALLER.set(caller)
