"""The protocol of whatever keeps an engine reachable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from gateway.generation import EngineFeatures
from gateway.generation.health import EngineCondition, EngineHealth
from gateway.generation.route import EndpointStatus, Route, RoutingHints
from gateway.settings import ModelSettings


class BackendStatus(Protocol):
    """A backend's state at one moment."""

    @property
    def ready(self) -> bool:
        """Whether requests can be served."""
        ...

    @property
    def reason(self) -> str:
        """One sentence: why this path when it is ready, else what is missing. For operators."""
        ...


class Backend(Protocol):
    """A supervised engine, or several that serve the same: they come and go, and are found again by themselves.

    Attributes:
        on_discovered: called, perhaps in a thread, with the features before each time it becomes ready; a ValueError
            that it raises keeps the backend from becoming ready, with the error's text as the reason.
    """

    on_discovered: Callable[[EngineFeatures], None] | None

    @property
    def features(self) -> EngineFeatures:
        """Features as last discovered; of several engines what they have in common.

        Raises:
            EngineError: UNAVAILABLE while the engine is unreachable or loading, UNSERVABLE while it does not fit.
        """
        ...

    @property
    def endpoints(self) -> Sequence[EndpointStatus]:
        """Each of several endpoints as it is now; empty where there is one engine at a fixed address."""
        ...

    def route(self, hints: RoutingHints) -> Route:
        """Choose the engine that a request goes to; the caller follows and ends the route.

        Raises:
            EngineError: as ``features``.
        """
        ...

    async def find(self, hints: RoutingHints) -> Route:
        """Choose as ``route``, after a wait where an engine is about to come back.

        Raises:
            EngineError: as ``features``.
        """
        ...

    def watch(self, watcher: Callable[[EngineHealth], None]) -> None:
        """Call ``watcher`` with the health of each engine, those of later ones too."""
        ...

    @property
    def condition(self) -> EngineCondition:
        """Its health now; of several engines that of all together."""
        ...

    @property
    def status(self) -> BackendStatus:
        """Its state now."""
        ...

    @property
    def ready(self) -> bool:
        """Whether requests can be served now, as ``status`` says it."""
        ...

    async def start(self) -> None:
        """Begin to supervise, and return immediately."""
        ...

    def check(self) -> None:
        """Check the readiness immediately, since a change was seen elsewhere."""
        ...

    async def close(self) -> None:
        """End everything that ``start`` began."""
        ...


BackendFactory = Callable[[ModelSettings], Backend]
