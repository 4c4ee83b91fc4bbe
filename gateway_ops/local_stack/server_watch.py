"""Watches a running tritonserver for a dead process of a model, and for a hang."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gateway.telemetry.cooldown import Cooldown
from gateway_ops.local_stack.process_tree import StubWatch
from gateway_ops.local_stack.triton_http import TritonHttp

_HANGS_S: Final = 20.0  # without a response to a request that costs nothing, however busy the machine is


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """The policy of restarts after failures.

    Attributes:
        most: most restarts in a row; 0 for none.
        first_wait_s: wait before the first restart, which doubles with each.
        longest_wait_s: the longest wait.
        calm_s: time in service after which the count begins again.
    """

    most: int = 0
    first_wait_s: float = 1.0
    longest_wait_s: float = 60.0
    calm_s: float = 600.0

    def wait_s(self, restarts: int) -> float:
        """The seconds before the next restart."""
        return min(self.first_wait_s * 2.0**restarts, self.longest_wait_s)


class ServerWatch:
    """Watches a server that has become ready.

    A full queue and a model that loads are not trouble.

    Args:
        http: HTTP endpoint of the server.
        pid: process id of the server, whose stubs are then known by their models; None where it has ended.
        engine_dead: whether a gateway before the server has found that an engine gives no tokens.
    """

    def __init__(self, http: TritonHttp, pid: int | None, engine_dead: Callable[[], bool] = bool) -> None:
        self._http = http
        self._engine_dead = engine_dead
        self._stubs = StubWatch()
        self._looks = Cooldown(1.0)
        self._answered = time.monotonic()
        if pid is not None:
            self._stubs.dead_model(pid)

    def trouble(self, pid: int) -> str | None:
        """Check at most once a second; returns why a restart is needed, as the rest of a sentence, or None."""
        if not self._looks.due():
            return None
        model = self._stubs.dead_model(pid)
        if model is not None:
            return f"is running, but the process of the model {model} died"
        if self._http.lives():
            self._answered = time.monotonic()
        if time.monotonic() - self._answered > _HANGS_S:
            return f"hangs: no response for {_HANGS_S:g} s"
        return "generates no tokens, as the gateway reports" if self._engine_dead() else None
