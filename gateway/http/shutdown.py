"""The end of a process as its clients see it: not ready any more, and connections that end with their responses."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.generation.health import EngineCondition


class ShutdownState:
    """Whether this process is about to end.

    Attributes:
        begun: whether the end has begun: open requests are completed, and clients should send no more.
    """

    REASON = "the gateway is shutting down"

    def __init__(self) -> None:
        self.begun = False

    def begin(self) -> None:
        """Begin the shutdown: readiness fails from now on."""
        self.begun = True

    def readiness(self, own: Mapping[str, EngineCondition]) -> Mapping[str, EngineCondition]:
        """The condition of each model: its own, or that it is not ready because nothing will be soon."""
        if not self.begun:
            return own
        return {
            name: each._replace(ready=False, reason=self.REASON) if each.ready else each for name, each in own.items()
        }
