"""Pings of a connection, sent only while requests are in flight."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

# Servers of gRPC end a connection after more than two pings that each come within five minutes of the one before,
# while they send nothing.
_QUICK_PINGS = 2
_SLOW_S = 310.0


class KeepAlive:
    """Pings a silent server.

    Args:
        interval: seconds of silence before a ping. From the third ping on without an answer to a request it is at
            least five minutes.
        timeout: seconds for any data after a ping.
        busy: whether requests are in flight.
        ping: sends a ping.
        give_up: called when the server is silent.
    """

    def __init__(
        self,
        interval: float,
        timeout: float,
        *,
        busy: Callable[[], bool],
        ping: Callable[[], None],
        give_up: Callable[[], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._interval = interval
        self._timeout = timeout
        self._busy = busy
        self._ping = ping
        self._give_up = give_up
        self._heard_at = self._loop.time()
        self._asked_at: float | None = None
        self._pings = 0
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Note that a request is in flight."""
        if self._timer is None:
            self._heard_at = self._loop.time()
            self._timer = self._loop.call_later(self._interval, self._check)

    def note_received(self, *, progress: bool) -> None:
        """Note received data; ``progress``: whether it belongs to a request."""
        self._heard_at = self._loop.time()
        if progress:
            self._pings = 0

    def stop(self) -> None:
        """Stop, because the connection has ended."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        self._timer = None
        if not self._busy():
            self._asked_at = None
            return
        delay = self._next(self._loop.time())
        if delay is None:
            self._give_up()
        else:
            self._timer = self._loop.call_later(delay, self._check)

    def _next(self, now: float) -> float | None:
        """Seconds until the next look; None when the server is silent for too long."""
        if self._asked_at is not None:
            if self._heard_at < self._asked_at:
                left = self._asked_at + self._timeout - now
                return left if left > 0 else None
            self._asked_at = None
        interval = self._interval if self._pings < _QUICK_PINGS else max(self._interval, _SLOW_S)
        left = self._heard_at + interval - now
        if left > 0:
            return min(left, self._interval)  # sooner than a rare ping: an answer that goes on makes them quick again
        self._ping()
        self._pings += 1
        self._asked_at = now
        return self._timeout
