"""Waiting for something to happen, for a bounded time of silence."""

from __future__ import annotations

import asyncio
import math
import time

from gateway.relay.token_relay import TokenRelay


class Waiter:
    """Lets one task at a time wait; one timer serves many waits, most of which end before it.

    Args:
        relay: text that it shows in the meantime ends the silence, too.
    """

    __slots__ = ("_future", "_patience_s", "_relay", "_since", "_timer")

    def __init__(self, relay: TokenRelay) -> None:
        self._relay = relay
        self._since = 0.0
        self._future: asyncio.Future[bool] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._patience_s = math.inf

    def wait(self, patience_s: float | None) -> asyncio.Future[bool]:
        """Begin to wait for ``wake``.

        Args:
            patience_s: seconds of silence after which to give up; None waits for ever.

        Returns:
            A future to await at once: True when woken, False after the silence.
        """
        loop = asyncio.get_running_loop()
        future = self._future = loop.create_future()
        self._patience_s = math.inf if patience_s is None else patience_s
        if patience_s is not None:
            self._since = time.perf_counter()
            due = math.inf if self._timer is None else self._timer.when()
            if due > loop.time() + patience_s:
                if self._timer is not None:
                    self._timer.cancel()
                self._timer = loop.call_later(patience_s, self._on_time, loop)
        return future

    def wake(self) -> None:
        """Wake the waiting task, if any."""
        if self._future is not None and not self._future.done():
            self._future.set_result(True)

    def stop(self) -> None:
        """Stop the timer: nothing will be waited for any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_time(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        if self._future is None or self._future.done() or self._patience_s == math.inf:
            return
        left = max(self._since, self._relay.shown) + self._patience_s - time.perf_counter()
        if left > 0:
            self._timer = loop.call_later(left, self._on_time, loop)
        else:
            self._future.set_result(False)
