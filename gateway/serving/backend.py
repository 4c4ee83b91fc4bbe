"""The protocol of backends, which keep engines reachable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from gateway.generation import EngineFeatures
from gateway.generation.health import EngineCondition, EngineHealth
from gateway.generation.route import EndpointStatus, Route, RoutingHints
from gateway.settings import ModelSettings


class BackendStatus(Protocol):
    """The state of a backend at one moment."""

    @property
    def ready(self) -> bool:
        """Whether requests can be served."""
        ...

    @property
    def reason(self) -> str:
        """The reason for operators in one sentence: how a ready engine is reached, or what is missing."""
        ...


class Backend(Protocol):
    """A supervised engine, or several engines of one model; lost engines are found again.

    Attributes:
        on_discovered: called, perhaps in a thread, with the features before each time it becomes ready; a ValueError
            that it raises keeps the backend from becoming ready, with the error's text as the reason.
    """

    on_discovered: Callable[[EngineFeatures], None] | None

    @property
    def features(self) -> EngineFeatures:
        """The features of the last discovery; of several engines the common ones.

        Raises:
            EngineError: UNAVAILABLE while the engine is unreachable or loading, UNSERVABLE while it does not fit.
        """
        ...

    @property
    def endpoints(self) -> Sequence[EndpointStatus]:
        """The current state of each of several endpoints; empty for one engine at a fixed address."""
        ...

    def route(self, hints: RoutingHints) -> Route:
        """Choose the engine of a request; the caller follows and ends the route.

        Raises:
            EngineError: as ``features``.
        """
        ...

    async def find(self, hints: RoutingHints) -> Route:
        """Choose as ``route`` does, and wait where an engine is about to come back.

        Raises:
            EngineError: as ``features``.
        """
        ...

    def watch(self, watcher: Callable[[EngineHealth], None]) -> None:
        """Call ``watcher`` with the health of each engine, also of later ones."""
        ...

    @property
    def condition(self) -> EngineCondition:
        """The current health; of several engines their common health."""
        ...

    @property
    def status(self) -> BackendStatus:
        """The current state."""
        ...

    @property
    def ready(self) -> bool:
        """Whether requests can be served now; see ``status``."""
        ...

    async def start(self) -> None:
        """Begin to supervise; returns immediately."""
        ...

    def check(self) -> None:
        """Check the readiness now, because a change was seen elsewhere."""
        ...

    async def close(self) -> None:
        """End everything that ``start`` began."""
        ...


BackendFactory = Callable[[ModelSettings], Backend]
