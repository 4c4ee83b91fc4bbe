from __future__ import annotations

from gateway.serving.fleet.breaker import Breaker, BreakerLimits


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_it_opens_after_failures_in_a_row_and_tries_one_request() -> None:
    clock = Clock()
    breaker = Breaker(BreakerLimits(failures=3, open_s=5), clock)
    for outcome in (breaker.failed, breaker.failed, breaker.succeeded, breaker.failed, breaker.failed):
        breaker.sent()
        outcome()
        assert breaker.takes
    breaker.sent()
    breaker.failed()
    assert (breaker.state, breaker.takes, breaker.open_for_s) == ("open", False, 5)
    clock.now = 5.0
    assert (breaker.state, breaker.takes) == ("half_open", True)
    breaker.sent()
    assert not breaker.takes  # one at a time
    breaker.unsaid()
    assert breaker.takes
    breaker.sent()
    breaker.failed()
    assert breaker.open_for_s == 10
    clock.now = 15.0
    breaker.sent()
    breaker.succeeded()
    assert (breaker.state, breaker.takes, breaker.open_for_s) == ("closed", True, 0)


def test_it_opens_for_twice_as_long_each_time_up_to_a_bound() -> None:
    clock = Clock()
    breaker = Breaker(BreakerLimits(failures=1, open_s=5, longest_s=30), clock)
    pauses = []
    for _ in range(50):
        breaker.sent()
        breaker.failed()
        pauses.append(breaker.open_for_s)
        clock.now += breaker.open_for_s
    assert pauses[:4] == [5, 10, 20, 30]
    assert set(pauses[3:]) == {30}


def test_requests_that_were_under_way_when_it_opened_change_nothing() -> None:
    clock = Clock()
    breaker = Breaker(BreakerLimits(failures=2, open_s=5), clock)
    for _ in range(10):
        breaker.sent()
    for _ in range(10):
        breaker.failed()
    assert breaker.open_for_s == 5
