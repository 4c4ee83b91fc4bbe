"""The end of a process as those who ask it meet it: not ready any more, and connections that end with their answers."""

from __future__ import annotations


class Departure:
    """Whether this process is about to end.

    Attributes:
        begun: it is: what is asked is answered, and nobody should come to ask more.
    """

    REASON = "the gateway is shutting down"

    def __init__(self) -> None:
        self.begun = False

    def begin(self) -> None:
        """From now on it is."""
        self.begun = True

    def readiness(self, own: dict[str, str | None]) -> dict[str, str | None]:
        """Why each model is not ready: for its own reason, or because nothing will be soon."""
        return {name: reason or self.REASON for name, reason in own.items()} if self.begun else own
