"""The health of an engine as one state, by discovery, requests and probes; pure, with the caller's clock."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from gateway.generation.gaps import LongGaps

_GAPS = 50  # a silence must last this many usual gaps
LATE_S = 0.5
"""Seconds after which a look or a timer comes late: it was held up, and so was whatever the engine has sent."""

_SOON_S = 0.001
_LOOKS = 20  # checks within the time of a silence, while the engine is in doubt
_LONGEST_LOOK_S = 1.0  # between checks where other processes may report, too
_PATIENCE_S = 10.0  # timeout of a probe, if the settings have no silence
_LONGEST_PATIENCE_S = 60.0
_PREFILL_RATE = 100.0  # tokens of prompts a second that a slow engine reads at least
_PAUSE_S = 2.0  # shortest time between two probes
_LONGEST_PAUSE_S = 10.0
_GRACE_S = 5.0  # after a token the engine is not called failing for this long
_MOST_PROBES = 2  # that fail in a row
_MOST_FAILURES = 3  # in a row, of which a probe is one
_HALF_LIFE_S = 60.0  # of outcomes, in the share of those that fail
_SHARE = 0.1
_FEWEST = 2.0

HealthState = Literal["ready", "unreachable", "loading", "stalled", "failing", "mismatched"]
"""States of a model's engine: it responds; Triton cannot be reached; its model is not loaded; it gives no token; its
requests fail; it cannot be served as configured. One that is failing in part is ready nevertheless."""

STATES: tuple[HealthState, ...] = ("ready", "unreachable", "loading", "stalled", "failing", "mismatched")

Belief = Literal["well", "suspect", "stalled", "failing"]
"""Health by tokens: the engine responds; is silent and being probed; left the probe unanswered; returns errors."""


class EngineCondition(NamedTuple):
    """The condition of a served model, or of one endpoint, at one moment.

    Attributes:
        ready: whether requests are served.
        state: state of the engine.
        reason: why it is not ready, or what is wrong although it is, in one sentence for operators; else empty.
        share: share of failures among the latest requests, 0 to 1.
        degraded: which worker processes do not serve it although others do, and why; else empty.
    """

    ready: bool
    state: HealthState
    reason: str = ""
    share: float = 0.0
    degraded: str = ""


READY = EngineCondition(ready=True, state="ready")


class HealthNote(NamedTuple):
    """One process's note on an engine; times in seconds of the monotonic clock, 0 for never.

    Attributes:
        responded: when any of its requests or probes last had a response.
        probed: when it last sent a probe.
        judged: when it last found the engine stalled or failing; 0 where it is well.
        state: the state that it found.
        waiting: tokens of prompts without a response yet.
        failed: failed requests; older ones count less.
        served: completed requests; older ones count less.
    """

    responded: float = 0.0
    probed: float = 0.0
    judged: float = 0.0
    state: HealthState = "ready"
    waiting: int = 0
    failed: float = 0.0
    served: float = 0.0


class HealthNotes(Protocol):
    """The notes of several processes on one engine."""

    def close(self) -> None:
        """Remove this process's note."""
        ...

    def write(self, note: HealthNote) -> None:
        """Write this process's note."""
        ...

    def others(self) -> Sequence[HealthNote]:
        """Read the notes of the other processes."""
        ...


@dataclass(frozen=True, slots=True)
class HealthRules:
    """The rules by which an engine gets a probe.

    Attributes:
        silence_s: seconds without any response, although an answer has begun, after which it is suspect at the
            earliest; 0: silence is never looked at.
        quiet_s: seconds without any token, with or without requests, after which it gets a probe; 0 for never.
        strikes: requests in a row that end without a response and make it suspect.
        turn: number of this process, from 0: the first sends probes after a quiet time, the others if it does not.
        notes: notes of all processes; None for one process.
    """

    silence_s: float = 0.0
    quiet_s: float = 0.0
    strikes: int = 3
    turn: int = 0
    notes: HealthNotes | None = None


class WatchedRequest(Protocol):
    """A request in flight whose responses are watched."""

    @property
    def prompt_tokens(self) -> int:
        """The tokens of the prompt."""
        ...

    def lost(self) -> None:
        """End the request: the engine has been unreachable for long, and no response will come."""
        ...

    def responded_at(self) -> float | None:
        """The time of the latest response, by the clock of the health; None before the first and while not read."""
        ...


class EngineHealth:
    """Decides by requests and probes whether an engine is reachable and gives tokens.

    The beginning and the end of requests are reported. Responses are not: a look asks the requests, so that a token
    costs nothing here. Three things make a probe due, which asks for one token: silence of requests (no response on any
    for ``limit_s`` although one has had its first; or several in a row that were given up for want of a response), a
    failure of the engine before any token, and a quiet time.

    Only probes take an engine out: one that has no response in time, while no request has one and none that is before
    it may still be reading its prompt; two that fail in a row; or three failures in a row of which a probe is one. What
    clients do, such as leaving or asking for what is not served, and a full queue say nothing of an engine. A response
    on any request or probe, of any process, ends doubt.

    Args:
        rules: the rules of probes.
        clock: returns seconds.

    Attributes:
        ready: whether requests may be sent.
        belief: the state by the engine's tokens.
        pause_s: the shortest gap between responses of a request that is to be reported to ``paused``.
        responses: returns the number of responses after a first one.
        awaits_first: whether a request that waits ``limit_s`` for its first response raises suspicion, too, when
            nothing responds meanwhile. A long prefill does so: only where others can serve in the meantime.
        one_piece: whether answers come in one response, so that silence is usual.
        probe_due: whether a probe is due, by the last look.
        wake: called where a look is due earlier than the last one returned.
    """

    def __init__(self, rules: HealthRules | None = None, clock: Callable[[], float] = time.perf_counter) -> None:
        self._rules = rules or HealthRules()
        self._clock = clock
        self._listeners: list[Callable[[Belief], None]] = []
        self._running: dict[WatchedRequest, float] = {}
        self._outage: EngineCondition | None = EngineCondition(
            ready=False, state="unreachable", reason="its state is not known yet"
        )
        self._others: Sequence[HealthNote] = ()
        self._failed = self._served = 0.0
        self._counted = self._latest = self._excused = self._struck = self._since = -math.inf
        self._asked = self._lost_at = -math.inf
        self._words = self._failure = ""
        self.belief: Belief = "well"
        self.ready = False
        self.pause_s = self._rules.silence_s / _GAPS or math.inf
        self.responses: Callable[[], int] = int
        self.awaits_first = self.one_piece = self.probe_due = False
        self.wake: Callable[[], None] = _ignore
        self._gaps = LongGaps(self.pause_s)
        self._begin()

    def lost(self, condition: EngineCondition) -> None:
        """Note that the engine is unreachable or cannot be served."""
        self._lost_at = self._clock() if self._outage is None else self._lost_at
        self._outage = condition
        self._begin()

    def end_silent(self) -> None:
        """End silent requests of an engine that has been unreachable for long.

        A server that leaves finishes its requests itself.
        """
        if self.one_piece or not self._rules.silence_s:
            return
        now, limit = self._clock(), self.limit_s
        for request, begun in list(self._running.items()):
            responded = request.responded_at()
            patience = limit if responded is not None else limit + request.prompt_tokens / _PREFILL_RATE
            if now - max(self._lost_at, begun if responded is None else responded) > patience:
                request.lost()

    def reset(self, *, one_piece: bool = False, doubtful: bool = False) -> None:
        """Reset the health for a newly discovered engine.

        Args:
            one_piece: see the attribute.
            doubtful: whether it has not answered a probe yet.
        """
        self._outage, self.one_piece = None, one_piece
        self._failed = self._served = 0.0  # of the former engine
        self._gaps = LongGaps(self.pause_s, self.responses())
        self._begin()
        if doubtful:
            self._since, self._doubted, self._next = self._due, True, self._due

    def _begin(self) -> None:
        self._due = self._clock()
        self._probe: float | None = None  # when the probe in flight was sent
        self._queued: float | None = None  # when the first probe was sent that met a full queue
        self._next = -math.inf  # when the next probe may be sent
        self._patience_s, self._pause_s = 0.0, _PAUSE_S
        self._believe(self._due)

    @property
    def reason(self) -> str:
        """The fault of the engine in one sentence; empty when it is well."""
        return self.condition.reason

    @property
    def condition(self) -> EngineCondition:
        """The current condition."""
        if self._outage is not None:
            return self._outage
        share = self._shared_share()
        if self.belief in ("stalled", "failing"):
            return EngineCondition(ready=False, state=_state(self.belief), reason=self._words, share=share)
        worst = self._fault_elsewhere()
        if worst is not None:
            words = "the one-token test of another worker of this gateway failed"
            return EngineCondition(ready=False, state=worst.state, reason=words, share=share)
        if share:
            return EngineCondition(
                ready=True, state="failing", reason=f"its engine fails {share:.0%} of its requests", share=share
            )
        return EngineCondition(ready=True, state="ready", reason=self._words)

    @property
    def limit_s(self) -> float:
        """The longest accepted silence in seconds: ``silence_s``, or 50 times the 99th percentile of the gaps."""
        return max(self._rules.silence_s or _PATIENCE_S, _GAPS * self._gaps.p99(self.responses()))

    def listen(self, listener: Callable[[Belief], None]) -> Callable[[], None]:
        """Call ``listener`` with each new belief; returns a function that ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def began(self, request: WatchedRequest) -> None:
        """Note that a request is sent."""
        self._running[request] = self._clock()

    def paused(self, gap_s: float) -> None:
        """Note a gap between two responses of a request; gaps within ``pause_s`` need not be reported."""
        if gap_s > self.pause_s:
            self._gaps.add(gap_s)

    def ended(self, request: WatchedRequest, *, given_up: bool = False, failed: bool = False) -> None:
        """Note that a request has ended.

        Args:
            request: the request of ``began``.
            given_up: whether it waited too long for its first or its next response.
            failed: whether a failure of the engine ended it.
        """
        begun = self._running.pop(request)
        responded = request.responded_at()
        if responded is not None:
            self._latest = max(self._latest, responded)
        if failed or responded is not None:
            self._fade()
            self._failed, self._served = self._failed + failed, self._served + (not failed)
        if given_up and self._rules.silence_s:
            self._strike(begun if responded is None else responded)
        if failed and responded is None and self._outage is None:
            self._fail()
            self.wake()

    def latest(self) -> float:
        """The time of the latest response of any request, or at which the engine was last found well."""
        self._listen_in(math.inf)
        return self._latest

    def look(self) -> float:
        """Update the health by the responses; returns the seconds until the next look."""
        now, limit = self._clock(), self.limit_s
        late = now - self._due > LATE_S
        waits = self._listen_in(now - limit / 2 if self.belief == "well" and not self._doubted else self._since)
        self._exchange_notes()
        responded = max([self._latest, *(other.responded for other in self._others)])
        since = self._since if self._doubted else self._probe or self._queued
        if since is not None and responded > since:
            self._believe(responded)
        pause = self._judge(now, responded, limit, waits=waits, late=late)
        self.ready = self._outage is None and self.belief in ("well", "suspect") and self._fault_elsewhere() is None
        self._due = now + pause
        return pause

    def _judge(self, now: float, responded: float, limit: float, *, waits: bool, late: bool) -> float:
        """Doubt, ask or give it up; returns the seconds until it may be due again."""
        silence, watches = now - responded, bool(self._rules.silence_s)
        pause = limit / 4 if self.awaits_first else limit
        if self._probe is not None or self._queued is not None:
            if not late:
                self._give_up_late_probes(now)
            pause = limit / _LOOKS
        elif waits and watches and not self._doubted:
            pause = max(limit - silence, _SOON_S)
            if silence >= limit and late:
                pause = LATE_S
            elif silence >= limit:
                silence = min(silence, now - min(self._running.values()))
                self._suspect(f"no running generation has received a token for {silence:.1f} s")
        self._settle(now)
        return min(pause, self._schedule(now, responded, limit))

    def _schedule(self, now: float, responded: float, limit: float) -> float:
        """Say whether a probe is due; the seconds after which to look again for its sake."""
        asked = max([self._asked, *(other.probed for other in self._others)])
        quiet = self._rules.quiet_s if self._rules.silence_s else 0.0
        due = math.inf
        if self._doubted:
            due = max(self._next, asked + min(_PAUSE_S, limit)) if self._probe is None else math.inf
        elif quiet and self._probe is None:
            due = max(responded, asked) + quiet + self._rules.turn
        self.probe_due = self._outage is None and due <= now
        longest = limit if self._rules.notes is None else _LONGEST_LOOK_S
        if self._doubted:
            longest = min(longest, limit / _LOOKS)
        return longest if self.probe_due else max(_SOON_S, min(longest, due - now))

    def probe_sent(self) -> None:
        """Note that a probe is sent."""
        self._probe = self._asked = self._clock()
        self.probe_due = False
        self._exchange_notes()

    def probe_delayed(self) -> None:
        """Start the time of the probe in flight again, because the engine has completed other clients' requests."""
        if self._probe is not None:
            self._probe = self._clock()

    @property
    def probing(self) -> bool:
        """Whether the response of a probe is awaited."""
        return self._probe is not None

    def probed(self, failure: str | None, *, queue_full: bool = False) -> None:
        """Note the outcome of a probe.

        Requests that are silent when the token comes are stuck by themselves: they raise no more suspicion.

        Args:
            failure: why no token came; None when one came.
            queue_full: whether a full queue is the reason.
        """
        sent, self._probe = self._probe, None
        now = self._clock()
        if failure is None:
            self._excused = now
            self._believe(now)
        elif queue_full:
            self._queued = self._queued or sent
            self._next = now + _PAUSE_S
        else:
            self._fail(failure)
        self._exchange_notes()

    def _give_up_late_probes(self, now: float) -> None:
        since = self._probe if self._probe is not None else self._queued
        assert since is not None  # noqa: S101 - one of them is there
        before = [each for each, begun in self._running.items() if begun < since]
        unanswered = [each for each in before if each.responded_at() is None]
        if (self.one_piece and unanswered) or (self._probe is None and not before):
            return
        unread = sum(each.prompt_tokens for each in unanswered) + sum(other.waiting for other in self._others)
        limit = max(self.limit_s, self._patience_s)
        if now - since <= limit + unread / _PREFILL_RATE:
            return
        self._probe = self._queued = None
        self._patience_s = max(limit, min(2 * limit, _LONGEST_PATIENCE_S))
        self._next = now
        if self.belief != "stalled":
            before_it = f"{self._words}, and it" if self._words else "it"
            self._words = f"{before_it} did not respond to the one-token test within {now - since:.1f} s"
            self._doubt(self._since if self._doubted else since)
            self._enter("stalled")

    def _fail(self, words: str = "") -> None:
        """Note a failure of the engine itself; ``words``: of a probe's."""
        now = self._clock()
        if self._doubted and self.latest() > self._since:  # the loop has not handled this sign of life yet
            self._believe(self._latest)
        self._failures += 1
        self._probe_failures += bool(words)
        self._failure = words or self._failure
        if not self._doubted:
            self._doubt(now)
        if words:
            self._next = now + self._pause_s
            if self.belief in ("stalled", "failing"):
                self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
        self._settle(now)

    def _settle(self, now: float) -> None:
        """Call the engine failing where enough has failed in a row, and nothing responded for a while."""
        failures, probes = self._failures, self._probe_failures
        enough = probes >= _MOST_PROBES or (probes and failures >= _MOST_FAILURES)
        if not enough or self.belief in ("stalled", "failing") or now - self._responded_before < _GRACE_S:
            return
        self._words = f"its engine failed {failures} requests in a row and the one-token test: {self._failure}"
        self._enter("failing")

    def _fade(self) -> None:
        """Lower the weight of counted outcomes with their age."""
        now = self._clock()
        fade = 0.5 ** ((now - self._counted) / _HALF_LIFE_S)
        self._failed, self._served, self._counted = self._failed * fade, self._served * fade, now

    def _shared_share(self) -> float:
        """The part of the latest requests that failed, of all processes; 0 where that is too little to speak of."""
        self._fade()
        failed = self._failed + sum(other.failed for other in self._others)
        served = self._served + sum(other.served for other in self._others)
        share = failed / (failed + served) if failed >= _FEWEST else 0.0
        return share if share >= _SHARE else 0.0

    def _exchange_notes(self) -> None:
        if self._rules.notes is None:
            return
        state = _state(self.belief)
        self._fade()
        judged = self._since_judged if self.belief in ("stalled", "failing") else 0.0
        waiting = sum(each.prompt_tokens for each in self._running if each.responded_at() is None)
        self._rules.notes.write(
            HealthNote(
                max(self._latest, 0.0), max(self._asked, 0.0), judged, state, waiting, self._failed, self._served
            )
        )
        self._others = self._rules.notes.others()

    def _fault_elsewhere(self) -> HealthNote | None:
        """The latest fault that another process found; None where a later response has disproved it."""
        worst = max(self._others, key=lambda other: other.judged, default=None)
        if worst is None or not worst.judged:
            return None
        responded = max(self._latest, *(other.responded for other in self._others))
        return worst if worst.judged > responded else None

    def _listen_in(self, enough: float) -> bool:
        """Update ``_latest``, no further than to one after ``enough``; returns whether any waits for another."""
        waits = False
        silent_since = self._clock() - self.limit_s if self.awaits_first else -math.inf
        for request, begun in self._running.items():
            responded = request.responded_at()
            if responded is None:
                waits = waits or self._excused < begun < silent_since
                continue
            waits = waits or responded > self._excused
            self._latest = max(self._latest, responded)
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
        if self._strikes >= self._rules.strikes and not self._doubted:
            self._suspect(
                f"{self._strikes} requests in a row timed out, and no running generation has received a token meanwhile"
            )
            self.wake()

    def _suspect(self, words: str) -> None:
        self._words = words
        self._doubt(self._clock())
        self._next = self._since
        self._enter("suspect")

    def _doubt(self, since: float) -> None:
        self._doubted, self._since = True, since
        self._responded_before = self._latest

    def _believe(self, responded: float) -> None:
        """Take the engine for well, because it responded."""
        self._latest = max(self._latest, responded)
        self._struck = self._since = self._responded_before = -math.inf
        self._strikes = self._failures = self._probe_failures = 0
        self._probe = self._queued = None
        self._patience_s, self._pause_s = 0.0, _PAUSE_S
        self._words = self._failure = ""
        self._doubted = False
        self._enter("well")

    def _enter(self, belief: Belief) -> None:
        before, self.belief = self.belief, belief
        self._since_judged = self._clock()
        self.ready = self._outage is None and belief in ("well", "suspect")
        if belief != before:
            for listener in tuple(self._listeners):
                listener(belief)


def _state(belief: Belief) -> HealthState:
    return "stalled" if belief == "stalled" else "failing" if belief == "failing" else "ready"


def _ignore() -> None:
    return None
