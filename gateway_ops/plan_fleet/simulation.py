"""Simulates several engines behind gateways that share a load, from event to event."""

from __future__ import annotations

import hashlib
import heapq
import itertools
import math
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from gateway.serving.comparison.durations import Durations
from gateway_ops.plan_fleet.engine import EngineJob, EngineWork, SimulatedEngine
from gateway_ops.plan_fleet.engine_costs import EngineCosts
from gateway_ops.plan_fleet.loads import LoadRequest

_BOUND: Final = 1.25  # as gateway.serving.fleet.policies has it


@dataclass(frozen=True, slots=True)
class EngineCell:
    """Engines that share a load.

    Attributes:
        costs: speed of each engine.
        engines: number of engines.
        policy: the choice of an engine for a request, by the names of ``triton.balance.policy``.
        known_prefixes: beginnings of prompts that each cache holds.
        seed: seed for random choices of the policy.
    """

    costs: EngineCosts
    engines: int
    policy: str = "least_in_flight"
    known_prefixes: int = 0
    seed: int = 0


@dataclass(slots=True)
class LatencySample:
    """The latencies of the measured requests, in seconds.

    Attributes:
        waited: from arrival until the prompt was begun.
        first: from arrival to the first token.
        between: from token to token, each answer's average.
        whole: from arrival to the last token.
        span: time in which the engines' work was counted.
        busy: part of it in which an engine worked, on the average.
        prompts: part of it in which one computed prompts.
        occupied: slots of an engine in use, on the average.
        tokens: of answers that count.
        known: requests that count whose beginning was in the cache.
    """

    waited: Durations = field(default_factory=Durations)
    first: Durations = field(default_factory=Durations)
    between: Durations = field(default_factory=Durations)
    whole: Durations = field(default_factory=Durations)
    span: float = 0.0
    busy: float = 0.0
    prompts: float = 0.0
    occupied: float = 0.0
    tokens: int = 0
    known: int = 0

    def note(self, job: EngineJob) -> None:
        """Add an ended request."""
        self.waited.add(job.begun - job.arrived)
        self.first.add(job.first - job.arrived)
        self.whole.add(job.ended - job.arrived)
        if job.request.answer > 1:
            self.between.add((job.ended - job.first) / (job.request.answer - 1))
        self.tokens += job.request.answer
        self.known += job.known


def simulate(
    cell: EngineCell, requests: Iterable[LoadRequest], *, skip: int, count: int, streams: int | None = None
) -> LatencySample:
    """Simulate requests until the measured ones have ended; others arrive meanwhile.

    Args:
        cell: the engines.
        requests: by rising time, more than count.
        skip: requests at the beginning that do not count: the engines fill.
        count: requests after them that do.
        streams: so many at a time, each followed by the next, whatever their times are; None: at their times.

    Raises:
        ValueError: there are too few requests.
    """
    return _Simulation(cell, requests, skip, count, streams).run()


class _Simulation:
    def __init__(
        self, cell: EngineCell, requests: Iterable[LoadRequest], skip: int, count: int, streams: int | None
    ) -> None:
        self._engines = [SimulatedEngine(cell.costs, cell.known_prefixes) for _ in range(cell.engines)]
        self._choose = _Balance(cell.policy, self._engines, cell.seed).choose
        self._requests: Iterator[LoadRequest] = iter(requests)
        self._numbers = itertools.count()
        self._counted = range(skip, skip + count)
        self._missing = count
        self._streams = streams
        # Times at which engines have something to do; of each only the newest entry is valid.
        self._due: list[tuple[float, int, int]] = []
        self._newest = [0] * cell.engines
        self._seen = LatencySample()
        self._before: list[EngineWork] = []
        self._began = 0.0

    def run(self) -> LatencySample:
        if self._streams is not None:
            for _ in range(self._streams):
                self._arrive(self._next(0.0))
        upcoming = None if self._streams is not None else self._next(None)
        while self._missing:
            due = self._due[0][0] if self._due else math.inf
            if upcoming is not None and upcoming.arrived <= due:
                self._arrive(upcoming)
                upcoming = self._next(None)
                continue
            now, stamp, place = heapq.heappop(self._due)
            if stamp == self._newest[place]:
                self._act(place, now)
        return self._seen

    def _next(self, now: float | None) -> EngineJob:
        try:
            request = next(self._requests)
        except StopIteration:
            raise ValueError("there are too few requests") from None
        return EngineJob(request, next(self._numbers), request.at if now is None else now)

    def _arrive(self, job: EngineJob) -> None:
        if job.number == self._counted.start:
            self._mark(job.arrived)
        place = self._choose(job.request)
        engine = self._engines[place]
        engine.advance(job.arrived)
        engine.add(job)
        self._plan(place)
        if job.number == self._counted.stop - 1:
            self._sum_up(job.arrived)

    def _act(self, place: int, now: float) -> None:
        engine = self._engines[place]
        engine.advance(now)
        ended = engine.act()
        self._plan(place)
        for job in ended:
            if job.number in self._counted:
                self._missing -= 1
                self._seen.note(job)
            if self._streams is not None:
                self._arrive(self._next(now))

    def _plan(self, place: int) -> None:
        self._newest[place] += 1
        if (due := self._engines[place].due) < math.inf:
            heapq.heappush(self._due, (due, self._newest[place], place))

    def _mark(self, now: float) -> None:
        """Begin to count the engines' work."""
        for engine in self._engines:
            engine.advance(min(now, engine.due))
        self._began = now
        self._before = [EngineWork(each.work.prompts, each.work.tokens, each.work.occupied) for each in self._engines]

    def _sum_up(self, now: float) -> None:
        span = now - self._began
        if span <= 0:
            return
        for engine in self._engines:
            engine.advance(min(now, engine.due))
        pairs = [(each.work, before) for each, before in zip(self._engines, self._before, strict=True)]
        whole = span * len(pairs)
        seen = self._seen
        seen.span = span
        seen.prompts = sum(after.prompts - before.prompts for after, before in pairs) / whole
        seen.busy = seen.prompts + sum(after.tokens - before.tokens for after, before in pairs) / whole
        seen.occupied = sum(after.occupied - before.occupied for after, before in pairs) / whole


class _Balance:
    """The choice of an engine, by the rules of the gateway's policies."""

    def __init__(self, policy: str, engines: Sequence[SimulatedEngine], seed: int) -> None:
        self._engines = engines
        self._lot = random.Random(seed)  # noqa: S311 - no secret
        self.choose = {
            "least_in_flight": self._least_in_flight,
            "power_of_two": self._power_of_two,
            "prefix": self._prefix,
        }[policy]

    def _least_in_flight(self, _request: LoadRequest) -> int:
        least = min(each.load for each in self._engines)
        return self._lot.choice([place for place, each in enumerate(self._engines) if each.load == least])

    def _power_of_two(self, _request: LoadRequest) -> int:
        drawn = self._lot.sample(range(len(self._engines)), min(2, len(self._engines)))
        return min(drawn, key=lambda place: self._engines[place].load)

    def _prefix(self, request: LoadRequest) -> int:
        name = request.prefix or str(self._lot.random())
        most = math.ceil(_BOUND * (sum(each.load for each in self._engines) + 1) / len(self._engines))
        fit = [place for place, each in enumerate(self._engines) if each.load < most] or range(len(self._engines))
        return max(fit, key=lambda place: (self._engines[place].knows(request.prefix), _rendezvous(name, place)))


def _rendezvous(name: str, place: int) -> bytes:
    return hashlib.blake2b(f"{name} {place}".encode(), digest_size=8).digest()
