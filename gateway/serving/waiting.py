"""Waiting for something to happen, for a bounded time of silence."""

from __future__ import annotations

import asyncio
import math
import time


class Waiter:
    """Lets one caller at a time wait; one timer serves many waits, most of which end before it.

    Attributes:
        heard: ``time.perf_counter()`` when there was last something to hear; waiting begins with it.
    """

    __slots__ = ("_future", "_patience_s", "_timer", "heard")

    def __init__(self) -> None:
        self.heard = 0.0
        self._future: asyncio.Future[bool] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._patience_s = math.inf

    async def wait(self, patience_s: float | None) -> bool:
        """Wait for ``wake``; False after ``patience_s`` seconds in which nothing was heard, None waits for ever."""
        loop = asyncio.get_running_loop()
        future = self._future = loop.create_future()
        if patience_s is not None:
            self._patience_s, self.heard = patience_s, time.perf_counter()
            if self._timer is None or self._timer.when() > loop.time() + patience_s:
                self._look_again(loop, patience_s)
        try:
            woken: bool = await future
        finally:
            self._future = None
            self._patience_s = math.inf
        return woken

    def wake(self) -> None:
        """Let who waits go on; nothing when nobody does."""
        future, self._future = self._future, None
        if future is not None and not future.done():
            future.set_result(True)

    def stop(self) -> None:
        """Look at the clock no more: nobody will wait for anything but what is there."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_again(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self.stop()
        self._timer = loop.call_later(seconds, self._on_time, loop)

    def _on_time(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        if self._future is None or self._patience_s == math.inf:
            return
        left = self.heard + self._patience_s - time.perf_counter()
        if left > 0:
            self._look_again(loop, left)
        elif not self._future.done():
            self._future.set_result(False)
