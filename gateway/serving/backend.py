"""The protocol of whatever keeps an engine reachable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from gateway.config import ModelSettings
from gateway.generation import Engine, EngineFeatures
from gateway.generation.progress import ProgressWatch


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
    """A supervised engine: it comes and goes, and is found again by itself.

    Attributes:
        on_discovered: called, perhaps in a thread, with the features before each time it becomes ready; a ValueError
            that it raises keeps the backend from becoming ready, with the error's text as the reason.
        progress: watches its engine; is to be told of all requests to it.
    """

    on_discovered: Callable[[EngineFeatures], None] | None
    progress: ProgressWatch

    @property
    def engine(self) -> Engine:
        """The engine as last discovered.

        Raises:
            EngineError: UNAVAILABLE while it is away or loading, UNSERVABLE while it does not fit.
        """
        ...

    @property
    def status(self) -> BackendStatus:
        """Its state now."""
        ...

    async def start(self) -> None:
        """Begin to supervise; returns at once."""
        ...

    def check(self) -> None:
        """Look at once whether it is still ready: someone else saw a change."""
        ...

    async def close(self) -> None:
        """End everything that ``start`` began."""
        ...


BackendFactory = Callable[[ModelSettings], Backend]
