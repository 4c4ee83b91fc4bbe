"""Deadlines of a generation, and waiting with a limit on silence."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from gateway.generation.health import LATE_S
from gateway.generation.relay.token_relay import TokenRelay


class Waiter:
    """Lets one task at a time wait, with one timer for all waits, as most waits end early.

    Args:
        relay: relay whose written text ends the silence, too.

    Attributes:
        on_wake: called whenever the task is woken; None: nothing is called.
    """

    __slots__ = ("_future", "_patience_s", "_relay", "_since", "_timer", "on_wake")

    def __init__(self, relay: TokenRelay) -> None:
        self._relay = relay
        self._since = 0.0
        self._future: asyncio.Future[bool] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._patience_s = math.inf
        self.on_wake: Callable[[], None] | None = None

    def wait(self, patience_s: float | None) -> asyncio.Future[bool]:
        """Begin to wait for ``wake``.

        Args:
            patience_s: seconds of silence after which to give up; None waits for ever.

        Returns:
            A future to await immediately: True when woken, False after the silence.
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
        """Wake the waiting task, if any.

        Output that comes until the task runs must not overtake the task's own.
        """
        self._relay.forward = None
        if self._future is not None and not self._future.done():
            self._future.set_result(True)
        if self.on_wake is not None:
            self.on_wake()

    def stop(self) -> None:
        """Stop the timer; no wait follows."""
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


@dataclass(frozen=True, slots=True)
class Deadlines:
    """The time limits of a generation, in seconds.

    Attributes:
        first_token_s: to the engine's first response, from the arrival of the request; of a generation that had to wait
            for others of its answer, from its own beginning.
        total_s: to the end of the answer, from the arrival of the request.
        between_tokens_s: from one response of the engine to the next, while it is read.
    """

    first_token_s: float
    total_s: float
    between_tokens_s: float = math.inf


class DeadlineTimer:
    """Watches the deadlines of one generation by one timer, which tokens do not touch.

    Args:
        deadlines: to keep.
        elapsed: seconds that have passed since the request arrived.
        waited: seconds of them that do not count for the first response.
        responded_at: returns ``time.perf_counter()`` at the engine's latest response, None before the first.
        expire: called once when a deadline has passed, with one sentence, and whether a response was missing.
    """

    __slots__ = ("_deadlines", "_end", "_expire", "_first", "_loop", "_responded_at", "_timer", "_when")

    def __init__(
        self,
        deadlines: Deadlines,
        *,
        elapsed: float,
        waited: float,
        responded_at: Callable[[], float | None],
        expire: Callable[[str, bool], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._deadlines = deadlines
        self._responded_at = responded_at
        self._expire = expire
        now = self._loop.time()
        self._end = now + max(0.0, deadlines.total_s - elapsed)
        self._first = now + max(0.0, deadlines.first_token_s - elapsed + waited)
        self._when = min(self._first, now + deadlines.between_tokens_s, self._end)
        self._timer = self._loop.call_at(self._when, self._on_time)

    def stop(self) -> None:
        """Stop watching."""
        self._timer.cancel()

    def _look_at(self, when: float) -> None:
        self._when = min(when, self._end)
        self._timer = self._loop.call_at(self._when, self._on_time)

    def _on_time(self) -> None:
        deadlines, responded_at = self._deadlines, self._responded_at()
        now = max(self._loop.time(), self._when)
        if responded_at is None and now >= self._first and self._first <= self._end:
            self._expire(f"The model returned no token within {deadlines.first_token_s:g} seconds.", True)
        elif now >= self._end:
            self._expire(
                f"The model did not finish its answer within {deadlines.total_s:g} seconds.", responded_at is None
            )
        elif responded_at is None:
            self._look_at(self._first)
        elif (left := responded_at + deadlines.between_tokens_s - time.perf_counter()) > 0:
            self._look_at(now + left)
        elif now - self._when > LATE_S:
            self._look_at(now + LATE_S)
        else:
            silence = f"no token arrived for {deadlines.between_tokens_s:g} seconds"
            self._expire(f"The model stopped responding before the end of its answer: {silence}.", True)
