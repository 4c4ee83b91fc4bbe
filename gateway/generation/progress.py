"""Whether an engine goes on answering: a watch over its requests, pure and with a clock of its caller."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Literal, Protocol

from gateway.generation.gaps import LongGaps

_GAPS = 50  # usual gaps that a silence must be as long as
_SOON_S = 0.001
_LATE_S = 0.5  # a look that comes so late was held up, and so was whatever the engine has sent
_LOOKS = 20  # within the time of a silence, while there is doubt

State = Literal["well", "suspect", "stalled"]
"""States of an engine: it answers; it has fallen silent and is to be asked; it was asked and did not answer."""


class Watched(Protocol):
    """A request in flight."""

    def heard(self) -> float | None:
        """When it last had a response, by the watch's clock; None before the first, and while nobody reads it."""
        ...


class ProgressWatch:
    """Suspects an engine that has begun to answer and then says nothing on any request.

    Requests are told when they begin and end. Responses are not told at all: a look asks the requests, so that a token
    costs nothing here. Two things raise suspicion: no response on any request for ``limit_s`` although one of them has
    had its first; and several requests in a row that were given up for want of a response while none had any, at least
    in the second half of their waits, which is all that shows where no request gets a first response. Whoever looks
    then asks the engine for one token, and tells the outcome. A response on any request ends doubt, too.

    Args:
        silence_s: see the attribute.
        strikes: requests in a row to be given up.
        clock: in seconds.

    Attributes:
        state: of the engine.
        reason: why it is not well, in one sentence; empty when it is.
        silence_s: seconds without any response after which an engine is suspect at the earliest; 0: it never is.
        pause_s: the shortest gap between responses of a request that ``paused`` is to be told.
        responses: tells how many responses there have been after a first one.
        awaits_first: whether a request that waits as long for its first response raises suspicion, too, when nothing
            is heard meanwhile. A long prefill does so: only where others can serve in the meantime.
    """

    def __init__(
        self, silence_s: float = 0.0, strikes: int = 3, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.state: State = "well"
        self.reason = ""
        self.pause_s = silence_s / _GAPS or math.inf
        self.responses: Callable[[], int] = int
        self.awaits_first = False
        self.silence_s = silence_s
        self._most_strikes = strikes
        self._clock = clock
        self._listeners: list[Callable[[State], None]] = []
        self._running: dict[Watched, float] = {}
        self._latest = self._excused = self._struck = self._since = -math.inf
        self.reset()

    def reset(self) -> None:
        """Begin anew, with another engine."""
        self._gaps = LongGaps(self.pause_s, self.responses())
        self._due = self._clock()
        self._believe(self._due)

    @property
    def limit_s(self) -> float:
        """Seconds of silence that are too long: ``silence_s``, or 50 times the 99th percentile of the gaps."""
        return max(self.silence_s, _GAPS * self._gaps.p99(self.responses()))

    def listen(self, listener: Callable[[State], None]) -> Callable[[], None]:
        """Call ``listener`` with each new state; returns what ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def began(self, request: Watched) -> None:
        """A request was sent."""
        self._running[request] = self._clock()

    def paused(self, gap_s: float) -> None:
        """A response came that long after the one before it on its request; one within ``pause_s`` need not be told."""
        if gap_s > self.pause_s:
            self._gaps.add(gap_s)

    def ended(self, request: Watched, *, given_up: bool = False) -> None:
        """A request has ended.

        Args:
            request: as it began.
            given_up: whether it was ended because it waited too long for its first or its next response.
        """
        begun = self._running.pop(request)
        heard = request.heard()
        if heard is not None:
            self._latest = max(self._latest, heard)
        if given_up and self.silence_s:
            self._strike(begun if heard is None else heard)

    def latest(self) -> float:
        """When any request was last heard, or the engine was last found well."""
        self._listen_in(math.inf)
        return self._latest

    def look(self) -> float:
        """Judge by what was heard; returns the seconds after which to look again."""
        now, limit = self._clock(), self.limit_s
        waits = self._listen_in(now - limit / 2 if self.state == "well" else self._since)
        silence = now - self._latest
        late = now - self._due > _LATE_S
        if self.state != "well":
            if self._latest > self._since:
                self._believe(self._latest)
            pause = limit / _LOOKS
        elif not waits:
            pause = limit / 4 if self.awaits_first else limit
        elif silence < limit:
            pause = max(limit - silence, _SOON_S)
        elif late:
            pause = _LATE_S
        else:
            silence = min(silence, now - min(self._running.values()))
            self._suspect(f"none of the answers that run has gone on for {silence:.1f} s")
            pause = limit / _LOOKS
        self._due = now + pause
        return pause

    def probed(self, failure: str | None) -> None:
        """The engine was asked for one token; ``failure``: why there was none, None when it came.

        Requests that are silent when the token comes are stuck by themselves: they raise no more suspicion.
        """
        if self.state == "well":
            return
        if failure is None:
            now = self._clock()
            self._believe(now)
            self._excused = now
        elif self.state == "suspect":
            self.reason += f", and it was asked for one token in vain: {failure}"
            self._enter("stalled")

    def _listen_in(self, enough: float) -> bool:
        """Update ``_latest``, no further than to one after ``enough``; returns whether any waits for another."""
        waits = False
        unheard = self._clock() - self.limit_s if self.awaits_first else -math.inf
        for request, begun in self._running.items():
            heard = request.heard()
            if heard is None:
                waits = waits or self._excused < begun < unheard
                continue
            waits = waits or heard > self._excused
            self._latest = max(self._latest, heard)
            if waits and self._latest > enough:
                break
        return waits

    def _strike(self, waited_from: float) -> None:
        now, latest = self._clock(), self.latest()
        if latest > self._struck:
            self._strikes = 0
        if now - latest < (now - waited_from) / 2:  # others may have fallen silent a moment after it
            return
        self._strikes += 1
        self._struck = now
        if self._strikes >= self._most_strikes and self.state == "well":
            self._suspect(f"{self._strikes} requests in a row were given up, and no answer has gone on meanwhile")

    def _suspect(self, reason: str) -> None:
        self.reason = reason
        self._since = self._clock()
        self._enter("suspect")

    def _believe(self, heard: float) -> None:
        """Take the engine for well, because it was heard."""
        self._latest = heard
        self._struck = self._since = -math.inf
        self._strikes = 0
        self.reason = ""
        self._enter("well")

    def _enter(self, state: State) -> None:
        if state != self.state:
            self.state = state
            for listener in tuple(self._listeners):
                listener(state)
