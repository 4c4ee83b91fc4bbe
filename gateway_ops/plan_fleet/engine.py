"""The simulated engine: a queue, prompts one after the other, and a batch that generates tokens."""

from __future__ import annotations

import heapq
import math
from collections import OrderedDict, deque
from dataclasses import dataclass

from gateway_ops.plan_fleet.engine_costs import EngineCosts
from gateway_ops.plan_fleet.loads import LoadRequest


@dataclass(slots=True)
class EngineJob:
    """A request at an engine, with its times.

    Attributes:
        request: the request.
        number: number of the request in its load, from 0.
        arrived: time of arrival in seconds.
        begun: time at which its prompt began.
        first: time of its first token.
        ended: time of its last token.
        known: whether the engine had the beginning of its prompt cached.
    """

    request: LoadRequest
    number: int
    arrived: float
    begun: float = math.inf
    first: float = math.inf
    ended: float = math.inf
    known: bool = False


@dataclass(slots=True)
class EngineWork:
    """The busy time of an engine in seconds, by kind of work.

    Attributes:
        prompts: seconds of prompts.
        tokens: seconds of token steps.
        occupied: seconds of its slots, summed over them.
    """

    prompts: float = 0.0
    tokens: float = 0.0
    occupied: float = 0.0


class SimulatedEngine:
    """An engine with in-flight batching.

    A request waits for a slot, in order. Its prompt is computed alone, in order too, and no token is made meanwhile;
    then it has a token in each step of the batch, whose length depends on how many have one.

    Args:
        costs: its speed.
        known_prefixes: beginnings of prompts that its cache holds, least recently used ones leave first.
    """

    def __init__(self, costs: EngineCosts, known_prefixes: int = 0) -> None:
        self.work = EngineWork()
        self.load = 0
        self._costs, self._most_known = costs, known_prefixes
        self._waiting: deque[EngineJob] = deque()
        self._prompts: deque[EngineJob] = deque()  # prompts with a slot; the engine computes the first
        self._prompt_end = math.inf
        self._running: list[tuple[float, int, EngineJob]] = []  # by the steps of the batch at which they end
        self._steps = 0.0  # steps of the batch so far
        self._now = 0.0
        self._known: OrderedDict[str, None] = OrderedDict()

    def knows(self, prefix: str | None) -> bool:
        """Tell whether the cache has a beginning."""
        return prefix in self._known

    @property
    def due(self) -> float:
        """The time of the next event without new requests; infinite without one."""
        if self._prompts:
            return self._prompt_end
        if self._running:
            return self._now + max(0.0, self._running[0][0] - self._steps) * self._costs.steps[len(self._running)]
        return math.inf

    def add(self, job: EngineJob) -> None:
        """Add a request at the time that ``advance`` has reached."""
        self.load += 1
        self._waiting.append(job)
        self._admit()

    def advance(self, now: float) -> None:
        """Advance the time, up to ``due`` at most."""
        spent, running = now - self._now, len(self._running)
        self.work.occupied += spent * (running + len(self._prompts))
        if self._prompts:
            self.work.prompts += spent
        elif running:
            self.work.tokens += spent
            self._steps += spent / self._costs.steps[running]
        self._now = now

    def act(self) -> list[EngineJob]:
        """Handle the event that is due now; returns ended requests."""
        ended: list[EngineJob] = []
        if self._prompts:
            job = self._prompts.popleft()
            job.first = self._now
            if job.request.answer > 1:
                heapq.heappush(self._running, (self._steps + job.request.answer - 1, job.number, job))
            else:
                ended.append(job)
            self._begin()
        else:
            # The arithmetic of floats may leave a trillionth of a step.
            self._steps = max(self._steps, self._running[0][0])
            while self._running and self._running[0][0] <= self._steps:
                ended.append(heapq.heappop(self._running)[2])
        for job in ended:
            job.ended = self._now
        self.load -= len(ended)
        self._admit()
        return ended

    def _admit(self) -> None:
        while self._waiting and len(self._prompts) + len(self._running) < self._costs.slots:
            self._prompts.append(self._waiting.popleft())
            if len(self._prompts) == 1:
                self._begin()

    def _begin(self) -> None:
        """Begin the first of the prompts, if there is one."""
        if not self._prompts:
            return
        job = self._prompts[0]
        job.begun = self._now
        tokens = job.request.prompt
        if self._most_known and job.request.prefix is not None:
            job.known = self.knows(job.request.prefix)
            self._learn(job.request.prefix)
            # One token at least is computed for the first of the answer.
            tokens = max(1, tokens - job.request.shared) if job.known else tokens
        self._prompt_end = self._now + self._costs.prefill(tokens)

    def _learn(self, prefix: str) -> None:
        self._known[prefix] = None
        self._known.move_to_end(prefix)
        if len(self._known) > self._most_known:
            self._known.popitem(last=False)
