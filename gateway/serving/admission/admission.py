"""Admission to a model by fair queueing among callers.

Start-time fair queueing (Goyal et al., 1996) over all worker processes. A bounded number of generations run, the others
wait for their turn. A generation costs its prompt's tokens and those that it may have, and what it did not use is given
back at its end. The next turn goes to the waiting caller that was given least for its weight. A caller that comes after
a pause begins where the others are, so that a pause saves nothing up.
Beside another caller, turns of one that has most of the engine are spread: where all of its answers are as long and
began together, all slots would come free together, and the other would wait for a whole answer instead of for the next
slot. How far follows from its shortest recent answer: answers of mixed lengths end one by one, and are hardly held up.
Of the requests of one caller the one with the smallest priority goes first, then the oldest.
"""

from __future__ import annotations

import asyncio
import heapq
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from gateway.generation import EngineError, ErrorKind
from gateway.serving.admission.shares import (
    CALLER,
    ENDED,
    RANK,
    RUNNING,
    SERVED,
    TOKENS,
    WAITING,
    Line,
    SharedLine,
    SharedLines,
)
from gateway.settings.model_settings import AdmissionSettings
from gateway.text.bounded_dict import BoundedDict
from gateway.text.shared_memory import key_of

_SCALE: Final = 64  # parts of a token that shares are counted in: weights may be 64 times as large as another
_LOOK_S: Final = 0.05  # while something waits: another process may have ended without waking this one
_TOGETHER, _SPREAD = 0.25, 0.75  # of the time from an end to the next: turns that are spread, and how far
_LONGEST_INTERVAL_S: Final = 1.0  # of these times
_RECENT: Final = 16  # answers of a caller whose durations are known
_WINDOW_S: Final = 10.0  # over which the rate of ends is taken, and in which a caller that has waited may come again
_FIRST: Final = 1 << 10  # priorities are from -_FIRST on, up to below it
_CLOCK_BITS: Final = 51  # of a rank: microseconds of 71 years
_CLOCK: Final = (1 << _CLOCK_BITS) - 1
_LONGEST_RETRY_S: Final = 600


class GenerationDemand(NamedTuple):
    """The demand of one generation on a model.

    Attributes:
        caller: id of the caller; empty for a caller without a name.
        weight: weight of the caller's share.
        tokens: tokens of the prompt, and the most tokens of the answer.
        priority: the smaller goes first, among the requests of its caller.
    """

    caller: str
    weight: float
    tokens: int
    priority: int = 0


@dataclass(frozen=True, slots=True)
class AdmissionTotals:
    """The generations of a model at one moment, in all worker processes.

    Attributes:
        running: generations in the engine.
        waiting: generations that wait for their turn.
        limit: most running generations; None without a limit.
    """

    running: int
    waiting: int
    limit: int | None


@dataclass(eq=False, slots=True)
class QueueTicket:
    """A generation in the queue, and then among the running ones.

    Attributes:
        admission: admission of the model.
        demand: demand of the generation.
        caller: key of the caller.
        line: line of the caller.
        rank: rank among the generations of its caller.
        queued: when it began to wait, by the clock of the shares.
        waited_s: seconds that it waited; 0.0 until it runs.
        cost: cost of the demand, once the generation runs; None before, and without a limit.
        running: whether it runs, or has run.
        gone: whether it no longer waits.
        turn: future that is done when its turn comes.
        began: when it began to run, by the clock of the shares.
    """

    admission: Admission
    demand: GenerationDemand
    caller: int
    line: Line
    rank: int
    queued: float = 0.0
    waited_s: float = 0.0
    cost: int | None = None
    running: bool = False
    gone: bool = False
    turn: asyncio.Future[None] | None = field(default=None, repr=False)
    began: float = 0.0

    @property
    def waits(self) -> bool:
        """Whether the generation still waits for its turn."""
        return not self.gone and self.turn is not None and not self.turn.done()

    def leave(self, used: int) -> None:
        """Note the end of the generation, with the tokens of its prompt and its answer."""
        if self.cost is not None:
            self.line[SERVED] += _cost(used, self.demand.weight) - self.cost
        self.line[RUNNING] -= 1
        admission = self.admission
        admission.own[RUNNING] -= 1
        admission.own[ENDED] += 1
        admission.durations.setdefault(self.caller, deque(maxlen=_RECENT)).append(admission.now() - self.began)
        admission.dispatch()

    def __lt__(self, other: QueueTicket) -> bool:
        return self.rank < other.rank


class Admission:
    """Admits the generations of one model.

    Args:
        model: name of the model.
        settings: bounds of running and waiting generations.
        shares: lines of all worker processes.
        engine_limit: returns the most concurrent requests that the engines report; None where they report none.

    Attributes:
        rejected: called with the reason whenever a request is rejected: ``full`` or ``late``.
        own: this process's line of the model by itself.
        now: the clock of the shares, in seconds.
        durations: seconds that each caller's latest generations ran which ended in this process.
        successor: admission of the same model with new settings, whose limit holds for those that still wait here.
    """

    def __init__(
        self,
        model: str,
        settings: AdmissionSettings,
        shares: SharedLines,
        engine_limit: Callable[[], int | None] | None = None,
    ) -> None:
        self.rejected: Callable[[str], None] = lambda _: None
        self.successor: Admission | None = None
        self._name = model
        self._settings = settings
        self._shares = shares
        self._engine_limit = engine_limit
        self._model = key_of(model)
        self.own = shares.line(self._model)
        self.now = shares.clock
        self.durations = BoundedDict[int, deque[float]](64)
        self._spread_until = 0.0
        self._spread: asyncio.TimerHandle | None = None
        self._queues: dict[int, list[QueueTicket]] = {}  # heaps, by the caller's key
        self._waiting = 0
        self._timer: asyncio.TimerHandle | None = None
        self._leave: Callable[[], None] | None = None
        self._ends: deque[tuple[float, int]] = deque()

    @property
    def limit(self) -> int | None:
        """The most running generations; None without a limit."""
        if self.successor is not None:
            return self.successor.limit
        given = self._settings.max_running
        if given is None:
            return None if self._engine_limit is None else self._engine_limit()
        return given or None

    def totals(self) -> AdmissionTotals:
        """Count running and waiting generations, and look up their limit."""
        running, waiting, _, _ = self._shares.sums(self.own, self.own)
        return AdmissionTotals(running, waiting, self.limit)

    def running_and_waiting(self) -> tuple[int, int]:
        """Return the numbers of running and of waiting generations in all worker processes."""
        return self._shares.sums(self.own, self.own)[:2]

    async def enter(self, demand: GenerationDemand) -> QueueTicket:
        """Wait for the turn of a generation, which must leave at its end.

        Raises:
            EngineError: QUEUE_FULL when too many wait, or the wait was too long.
        """
        if self._leave is None:
            self._leave = self._shares.listen(self.dispatch)
        line = self._shares.line(self._model, key_of(self._name, demand.caller))
        first = min(max(demand.priority, -_FIRST), _FIRST - 1) + _FIRST
        ticket = QueueTicket(self, demand, line[CALLER], line, first << _CLOCK_BITS | int(self._shares.clock() * 1e6))
        limit = self.limit
        if limit is None:
            self._begin(ticket)
            return ticket
        running, waiting, served, virtual = self._shares.sums(self.own, line)
        if running < limit and not waiting:
            self._run(ticket, served, virtual)
            return ticket
        self._make_room(ticket, AdmissionTotals(running, waiting, limit))
        self._queue(ticket)
        self.dispatch()
        if not ticket.running:
            await self._turn(ticket)
        return ticket

    def close(self) -> None:
        """End the timers and the wake-ups by other processes, and drop references to the model and the successor."""
        self.successor = self._engine_limit = None
        for timer in (self._timer, self._spread):
            if timer is not None:
                timer.cancel()
        self._timer = self._spread = None
        if self._leave is not None:
            self._leave()
            self._leave = None

    async def _turn(self, ticket: QueueTicket) -> None:
        loop = asyncio.get_running_loop()
        turn = ticket.turn = loop.create_future()
        late = None
        if self._settings.max_wait_s is not None:
            late = loop.call_later(self._settings.max_wait_s, self._reject_late, ticket)
        try:
            await turn
        except asyncio.CancelledError:
            if ticket.running:  # the request was admitted while its client left
                ticket.leave(0)
            raise
        finally:
            ticket.turn = None
            if late is not None:
                late.cancel()
            if not ticket.running:
                self._withdraw(ticket)

    def _reject_late(self, ticket: QueueTicket) -> None:
        if ticket.turn is not None and not ticket.turn.done():
            self.rejected("late")
            self._reject(ticket, ticket.turn, f"The request waited for {self._settings.max_wait_s:g} s")

    def _reject(self, ticket: QueueTicket, turn: asyncio.Future[None], why: str) -> None:
        """Reject a waiting request, and withdraw it before its task runs, so that it gets no turn."""
        turn.set_exception(self._refusal(why))
        self._withdraw(ticket)

    def _make_room(self, ticket: QueueTicket, totals: AdmissionTotals) -> None:
        """Make room in a full queue by rejecting requests of the caller that has most in it.

        Raises:
            EngineError: QUEUE_FULL, where the new request is to be rejected.
        """
        waiting: dict[int, int] = {ticket.caller: 0}
        count, tokens = totals.waiting, ticket.demand.tokens
        for entry in self._shares.entries(self._model):
            if entry.caller:
                waiting[entry.caller] = waiting.get(entry.caller, 0) + entry.waiting
                tokens += entry.tokens
        while not self._has_room(count, tokens):
            self.rejected("full")
            greediest = max(self._queues, key=lambda caller: waiting[caller], default=ticket.caller)
            newest = None
            if waiting[greediest] > waiting[ticket.caller] + 1:  # otherwise no search of a long queue is needed
                newest = max((each for each in self._queues[greediest] if each.waits), default=None)
            if newest is None or newest.turn is None:
                # The caller with most requests may have them in another process, out of reach: the queue may double.
                if max(waiting.values()) > waiting[ticket.caller] + 1 and self._has_room(count / 2, tokens / 2):
                    return
                raise self._refusal("Too many requests are waiting for this model")
            self._reject(
                newest, newest.turn, "Too many requests are waiting for this model, most of them from the same caller"
            )
            waiting[greediest] -= 1
            count, tokens = count - 1, tokens - newest.demand.tokens

    def _has_room(self, waiting: float, tokens: float) -> bool:
        """Tell whether a new request may join the queue.

        Args:
            waiting: requests in the queue without the new one.
            tokens: tokens of the queue with the new request.
        """
        most = self._settings.max_waiting_tokens
        return not waiting or (waiting < self._settings.max_waiting and (most is None or tokens <= most))

    def _refusal(self, why: str) -> EngineError:
        return EngineError(ErrorKind.QUEUE_FULL, f"{why}; try again later.", retry_after_s=self._retry_after())

    def _retry_after(self) -> int:
        """Seconds until as many have ended as wait now, by the rate of the last seconds; 1 before any has."""
        self._note_ends()
        (first, before), (last, ended) = self._ends[0], self._ends[-1]
        if ended == before or last == first:
            return 1
        wait = self.totals().waiting * (last - first) / (ended - before)
        return min(max(1, math.ceil(wait)), _LONGEST_RETRY_S)

    def _note_ends(self) -> None:
        now = self._shares.clock()
        ended = sum(entry.ended for entry in self._shares.entries(self._model) if not entry.caller)
        self._ends.append((now, ended))
        while self._ends[0][0] < now - _WINDOW_S and len(self._ends) > 2:
            self._ends.popleft()

    def _queue(self, ticket: QueueTicket) -> None:
        ticket.queued = self._shares.clock()
        heapq.heappush(self._queues.setdefault(ticket.caller, []), ticket)
        self._waiting += 1
        self._count(ticket, 1)
        if self._timer is None:
            self._look()

    def _withdraw(self, ticket: QueueTicket) -> None:
        if not ticket.gone:
            ticket.gone = True
            self._waiting -= 1
            self._count(ticket, -1)

    def _count(self, ticket: QueueTicket, change: int) -> None:
        """Tell all processes how many wait here, and the rank of the caller's first."""
        for line in (ticket.line, self.own):
            line[WAITING] += change
            line[TOKENS] += change * ticket.demand.tokens
        queue = self._queues[ticket.caller]
        while queue and queue[0].gone:
            heapq.heappop(queue)
        if queue:
            ticket.line[RANK] = queue[0].rank
        else:
            del self._queues[ticket.caller]

    def _look(self) -> None:
        """Look at those that wait, again and again while there are any."""
        self._timer = None
        self._note_ends()
        self.dispatch()
        if self._waiting:
            self._timer = asyncio.get_running_loop().call_later(_LOOK_S, self._look)

    def dispatch(self) -> None:
        """Start generations that may run, or wake the process whose request is next."""
        if self.limit is None and not self._waiting:
            return  # what still waits in other processes, since before the limit went, is seen by them
        while self._shares.waiting(self.own):  # rarely any
            self._shares.look()
            limit, virtual, running, latest = self.limit, 0, 0, 0
            served: dict[int, int] = {}
            has: dict[int, int] = {}
            first: dict[int, SharedLine] = {}
            for entry in self._shares.entries(self._model):
                if not entry.caller:
                    virtual, running = max(virtual, entry.served), running + entry.running
                    latest = max(latest, entry.rank)
                    continue
                has[entry.caller] = has.get(entry.caller, 0) + entry.running
                served[entry.caller] = served.get(entry.caller, 0) + entry.served
                if entry.waiting and not self._shares.hung(entry.row):
                    known = first.get(entry.caller)
                    if known is None or entry.rank < known.rank:
                        first[entry.caller] = entry
            if not first or (limit is not None and running >= limit):
                return
            chosen = min(first.values(), key=lambda entry: (max(virtual, served[entry.caller]), entry.rank))
            if chosen.row != self._shares.row:
                self._shares.wake(chosen.row)
                return
            most = limit is not None and 2 * has[chosen.caller] >= limit
            # Without a queue here it waits for the model as it was before its settings changed.
            if chosen.caller not in self._queues or (most and self._spreads(chosen.caller, latest / 1e6, limit or 1)):
                return
            self._grant(self._queues[chosen.caller][0], served[chosen.caller], virtual)

    def _spreads(self, caller: int, latest: float, limit: int) -> bool:
        """Whether a caller's turn has to wait, since another one has just been given; it is looked at again in time.

        Args:
            caller: that has most of the engine.
            latest: when that one was given.
            limit: of those that run.
        """
        shortest = min(self.durations.get(caller, (0.0,)))
        now, interval = self.now(), min(shortest / limit, _LONGEST_INTERVAL_S)  # from an end to the next, once spread
        if now >= self._spread_until:
            if now - latest >= _TOGETHER * interval or not self._has_company(caller):
                return False
            self._spread_until = latest + _SPREAD * interval
        if self._spread is None:
            self._spread = asyncio.get_running_loop().call_later(self._spread_until - now, self._end_spread)
        return True

    def _has_company(self, caller: int) -> bool:
        """Whether another caller runs or waits, or has waited recently."""
        since = self.now() - _WINDOW_S
        return any(
            entry.running or entry.waiting or _queued_at(entry.rank) > since
            for entry in self._shares.entries(self._model)
            if entry.caller not in {0, caller}
        )

    def _end_spread(self) -> None:
        self._spread = None
        self.dispatch()

    def _grant(self, ticket: QueueTicket, served: int, virtual: int) -> None:
        self._withdraw(ticket)
        ticket.waited_s = self._shares.clock() - ticket.queued
        self.own[RANK] = int(self.now() * 1e6)
        self._run(ticket, served, virtual)
        if ticket.turn is not None and not ticket.turn.done():
            ticket.turn.set_result(None)

    def _run(self, ticket: QueueTicket, served: int, virtual: int) -> None:
        begins = max(served, virtual)
        self.own[SERVED] = max(self.own[SERVED], begins)
        ticket.cost = _cost(ticket.demand.tokens, ticket.demand.weight)
        ticket.line[SERVED] += begins - served + ticket.cost
        self._begin(ticket)

    def _begin(self, ticket: QueueTicket) -> None:
        ticket.running, ticket.began = True, self.now()
        ticket.line[RUNNING] += 1
        self.own[RUNNING] += 1


def _queued_at(rank: int) -> float:
    """When a request of this rank began to wait, by the clock of the shares."""
    return (rank & _CLOCK) / 1e6


def _cost(tokens: int, weight: float) -> int:
    return int(tokens * _SCALE / weight)
