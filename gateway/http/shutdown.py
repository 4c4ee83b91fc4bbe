"""Graceful shutdown: readiness, and ``Connection: close`` while draining."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.generation.health import EngineCondition


class ShutdownState:
    """The state of a graceful shutdown.

    Attributes:
        begun: whether the shutdown has begun: open requests are completed, and clients should send no more.
    """

    REASON = "the gateway is shutting down"

    def __init__(self) -> None:
        self.begun = False

    def begin(self) -> None:
        """Begin the shutdown: readiness fails from now on."""
        self.begun = True

    def readiness(self, own: Mapping[str, EngineCondition]) -> Mapping[str, EngineCondition]:
        """The condition of each model, which is not ready during the shutdown."""
        if not self.begun:
            return own
        return {
            name: each._replace(ready=False, reason=self.REASON) if each.ready else each for name, each in own.items()
        }
