"""The surroundings that every dialect needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from gateway.generation.engine import EngineError, ErrorKind
from gateway.triton.background import BackgroundTasks
from gateway.triton.transport import Transport


def _ignore() -> None:
    return None


@dataclass(slots=True)
class Connection:
    """A way to one Triton.

    Attributes:
        transport: carries requests.
        background: for work that outlives a request.
        timeout: seconds that a request may take in all; a backstop behind the deadlines of whoever asks.
        on_unavailable: called when a request finds Triton or the model gone.
    """

    transport: Transport
    background: BackgroundTasks = field(default_factory=BackgroundTasks)
    timeout: float = 3600.0
    on_unavailable: Callable[[], None] = _ignore

    def report(self, error: EngineError) -> None:
        """Tell of a failure that a health check should look into."""
        if error.kind is ErrorKind.UNAVAILABLE:
            self.on_unavailable()
