"""An endpoint as two worker processes know it: one finds that it fails, and they find out together that it is well."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gateway.generation import EngineError, ErrorKind
from gateway.serving.fleet.breaker import Breaker, BreakerLimits
from gateway.serving.fleet.fleet_endpoint import FleetEndpoint
from gateway.serving.fleet.shared_counts import SharedCounts, size_of
from gateway.text.shared_memory import create_memory

GONE = EngineError(ErrorKind.UNAVAILABLE, "The model is currently unavailable; try again later.", "gone")


class Backend:
    """One that is always there."""

    ready = True

    def watch(self, watcher: Callable[[Any], None]) -> None: ...


class Route:
    """A request's way."""

    lose = None

    def movable(self) -> bool:
        return False


class Worker:
    """What one process knows of the endpoint."""

    def __init__(self, row: int, descriptor: int, clock: Callable[[], float]) -> None:
        self.counts = SharedCounts(2, row, descriptor, clock=clock)
        breaker = Breaker(BreakerLimits(failures=2, open_s=5), clock)
        self.endpoint = FleetEndpoint("m", "a:1", Backend(), breaker, self.counts)  # type: ignore[arg-type]

    @property
    def takes(self) -> bool:
        return self.endpoint.takes(self.counts.counts_of([self.endpoint.key])[self.endpoint.key])

    def send(self) -> Route:
        assert self.takes
        route = Route()
        self.endpoint.sent(route)  # type: ignore[arg-type]
        return route

    def end(self, route: Route, error: EngineError | None = None) -> None:
        if error is None:
            self.endpoint.responded(route)  # type: ignore[arg-type]
        self.endpoint.ended(route, error, responded=error is None)  # type: ignore[arg-type]


@pytest.fixture
def workers() -> Iterator[tuple[Worker, Worker, list[float]]]:
    descriptor = create_memory(size_of(2))
    now = [100.0]
    yield Worker(0, descriptor, lambda: now[0]), Worker(1, descriptor, lambda: now[0]), now
    os.close(descriptor)


def failing(worker: Worker) -> None:
    for _ in range(2):
        worker.end(worker.send(), GONE)


def test_one_request_of_all_workers_tries_it(workers: tuple[Worker, Worker, list[float]]) -> None:
    one, two, now = workers
    failing(one)
    assert not one.takes
    assert not two.takes
    now[0] += 5.1
    trial = two.send()
    assert not one.takes
    assert not two.takes
    now[0] += 1
    two.end(trial)
    assert one.takes
    assert two.takes
    one.send()
    assert one.takes
    assert two.takes


def test_a_trial_that_fails_or_is_given_up_lets_the_next_one_go(workers: tuple[Worker, Worker, list[float]]) -> None:
    one, two, now = workers
    failing(one)
    now[0] += 5.1
    two.end(two.send(), GONE)
    assert one.takes  # a first failure of the other worker
    trial = one.send()
    assert not two.takes
    one.end(trial, GONE)
    assert not one.takes
    assert not two.takes
    now[0] += 10.1
    one.endpoint.ended(one.send(), None, responded=False)  # type: ignore[arg-type]
    assert two.takes


def test_a_worker_that_dies_while_it_tries_holds_nobody_up(workers: tuple[Worker, Worker, list[float]]) -> None:
    one, two, now = workers
    failing(one)
    now[0] += 5.1
    two.send()
    assert not one.takes
    one.counts.clear(1)
    assert one.takes
