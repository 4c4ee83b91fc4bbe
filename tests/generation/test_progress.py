"""The watch over an engine's requests, with a clock of the test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.generation.gaps import LongGaps
from gateway.generation.progress import ProgressWatch, State
from tests.rings import examples

LIMIT = 10.0
SHORT = st.floats(min_value=0.001, max_value=LIMIT * 0.99)


class Answer:
    """A request in flight."""

    def __init__(self) -> None:
        self.at: float | None = None

    def heard(self) -> float | None:
        return self.at


class Situation:
    """A watch that is looked at whenever it wants to be, while requests come, respond and go.

    Attributes:
        now: seconds.
        states: that the watch has told.
    """

    def __init__(self, silence_s: float = LIMIT) -> None:
        self.now = 1000.0
        self.watch = ProgressWatch(silence_s, clock=lambda: self.now)
        self.states: list[State] = []
        self.watch.listen(self.states.append)
        self._next_look = self.now

    def wait(self, seconds: float) -> None:
        end = self.now + seconds
        while self._next_look <= end:
            self.now = max(self.now, self._next_look)
            self._next_look = self.now + self.watch.look()
        self.now = end

    def look(self) -> None:
        self._next_look = self.now + self.watch.look()

    def begin(self) -> Answer:
        answer = Answer()
        self.watch.began(answer)
        return answer

    def respond(self, answer: Answer) -> None:
        self.now += 1e-6  # nothing happens at the same time as what it is compared with
        answer.at = self.now

    def begun(self) -> Answer:
        answer = self.begin()
        self.respond(answer)
        return answer

    def give_up(self, answer: Answer) -> None:
        self.watch.ended(answer, given_up=True)


@st.composite
def histories(draw: Any) -> tuple[Situation, Answer]:
    """A situation that is well: many requests, of which one or another has responded within each limit.

    The answer that is returned runs and has just responded.
    """
    situation = Situation()
    running = [situation.begun()]
    for wait, action, which in draw(
        st.lists(st.tuples(SHORT, st.sampled_from(["begin", "end", "none"]), st.integers(0, 99)), max_size=20)
    ):
        situation.wait(wait)
        if action == "begin":
            running.append(situation.begin())
        elif action == "end" and len(running) > 1:
            situation.watch.ended(running.pop(which % len(running)))
        situation.respond(running[which % len(running)])
    situation.respond(running[-1])
    return situation, running[-1]


@settings(max_examples=examples(50))
@given(histories())
def test_an_engine_that_answers_any_request_within_the_limit_is_never_suspect(found: tuple[Situation, Answer]) -> None:
    assert found[0].states == []


@settings(max_examples=examples(50))
@given(histories(), st.integers(0, 3), st.floats(min_value=0, max_value=1000))
def test_an_engine_that_falls_silent_on_all_is_suspect_after_the_limit(
    found: tuple[Situation, Answer], waiting: int, later: float
) -> None:
    situation, _ = found
    for _ in range(waiting):
        situation.begin()
    situation.wait(LIMIT * 0.999)
    assert situation.states == []
    situation.wait(LIMIT * 0.002 + later)
    assert situation.states == ["suspect"]


@settings(max_examples=examples(50))
@given(histories(), st.booleans(), st.floats(min_value=0, max_value=1000), st.booleans())
def test_a_response_ends_doubt_and_the_next_silence_raises_it_again(
    found: tuple[Situation, Answer], probed_in_vain: bool, later: float, anew: bool
) -> None:
    situation, silent = found
    situation.wait(LIMIT + 1)
    if probed_in_vain:
        situation.watch.probed("nothing came")
        assert situation.watch.state == "stalled"
    situation.wait(later)
    assert situation.watch.state != "well"
    situation.respond(situation.begin() if anew else silent)
    situation.wait(LIMIT / 20 + 0.001)
    assert (situation.watch.state, situation.watch.reason) == ("well", "")
    situation.wait(LIMIT)
    assert situation.watch.state == "suspect"


def test_a_token_that_was_asked_for_ends_doubt_and_the_stuck_request_raises_none_again() -> None:
    situation = Situation()
    stuck = situation.begun()
    situation.wait(LIMIT + 1)
    situation.watch.probed(None)
    situation.wait(100 * LIMIT)
    assert situation.states == ["suspect", "well"]
    other = situation.begun()  # what happens to others counts as ever
    situation.wait(LIMIT + 1)
    assert situation.states[2:] == ["suspect"]
    situation.watch.probed(None)
    situation.watch.ended(other)
    situation.respond(stuck)  # and so does the stuck one, once it goes on
    situation.wait(LIMIT + 1)
    assert situation.watch.state == "suspect"


def test_the_reason_says_what_was_seen() -> None:
    situation = Situation()
    situation.begun()
    situation.wait(LIMIT + 1)
    assert "10.0 s" in situation.watch.reason
    situation.watch.probed("it is broken")
    situation.watch.probed("it is still broken")
    assert situation.watch.reason.endswith("in vain: it is broken")


def test_requests_without_a_first_response_are_no_stall() -> None:
    situation = Situation()
    situation.begin()
    situation.wait(100 * LIMIT)
    situation.watch.ended(situation.begun())
    situation.wait(100 * LIMIT)
    assert situation.states == []


def test_a_request_that_nobody_reads_is_no_stall() -> None:
    situation = Situation()
    unread = situation.begun()
    unread.at = None
    situation.wait(100 * LIMIT)
    assert situation.states == []


def test_a_look_that_comes_late_proves_nothing() -> None:
    """The gateway itself stood still, and with it what the engine has sent meanwhile."""
    situation = Situation()
    answer = situation.begun()
    situation.wait(1)
    situation.now += 60
    situation.look()
    situation.respond(answer)
    situation.wait(1)
    assert situation.states == []
    situation.now += 60
    situation.look()
    situation.wait(1)
    assert situation.states == ["suspect"]


def test_requests_in_a_row_that_are_given_up_without_any_response_raise_suspicion() -> None:
    situation = Situation()
    waiting = [situation.begin() for _ in range(3)]
    situation.wait(300)
    situation.give_up(waiting[0])
    situation.wait(1)
    situation.give_up(waiting[1])
    assert situation.states == []
    situation.give_up(waiting[2])
    assert situation.states == ["suspect"]
    situation.watch.probed(None)
    situation.give_up(situation.begin())
    assert situation.watch.state == "well", "the count begins anew"


def test_a_response_to_another_request_begins_the_row_anew() -> None:
    situation = Situation()
    waiting = [situation.begin() for _ in range(5)]
    situation.wait(300)
    for answer in waiting[:2]:
        situation.give_up(answer)
    situation.watch.ended(situation.begun())
    for answer in waiting[2:4]:
        situation.give_up(answer)
    situation.wait(1000)
    situation.give_up(waiting[4])
    situation.give_up(situation.begin())
    assert situation.states == []
    situation.give_up(situation.begin())
    assert situation.states == ["suspect"]


def test_answers_that_are_given_up_in_their_middle_count_as_well() -> None:
    situation = Situation(silence_s=1000)
    answers = [situation.begun() for _ in range(3)]
    situation.wait(60)
    for answer in answers:
        situation.give_up(answer)
    assert situation.states == ["suspect"]


def test_switched_off_it_suspects_nothing() -> None:
    situation = Situation(silence_s=0)
    for _ in range(5):
        situation.give_up(situation.begin())
    assert situation.states == []


def test_another_engine_begins_well() -> None:
    situation = Situation()
    situation.begun()
    situation.wait(LIMIT + 1)
    situation.watch.probed("it is broken")
    situation.watch.reset()
    assert situation.states == ["suspect", "stalled", "well"]
    assert situation.watch.reason == ""


def test_an_engine_with_long_gaps_is_given_longer() -> None:
    situation = Situation()
    responses = 0
    situation.watch.responses = lambda: responses
    answer = situation.begun()
    for _ in range(50):
        situation.wait(0.4)
        situation.respond(answer)
        situation.watch.paused(0.4)
        responses += 1
    situation.wait(0.4 * 50 * 0.999)
    assert situation.states == []
    situation.wait(0.4 * 50 * 0.126)
    assert situation.states == ["suspect"]


def p99(gaps: Sequence[float]) -> float:
    """The longest gap that more than one in a hundred reach."""
    return sorted(gaps, reverse=True)[len(gaps) // 100]


@given(st.lists(st.one_of(st.floats(0.0001, 0.19), st.floats(0.21, 200)), min_size=1, max_size=700))
def test_the_percentile_is_right_within_an_eighth(gaps: list[float]) -> None:
    estimate = LongGaps(0.2)
    for gap in gaps:
        if gap > 0.2:
            estimate.add(gap)
    exact = p99(gaps)
    got = estimate.p99(len(gaps))
    if exact <= 0.2:
        assert got == 0
    else:
        assert exact * 0.999 <= got <= exact * 1.126


def test_the_percentile_forgets() -> None:
    estimate = LongGaps(0.2, responses=10**9)
    for _ in range(100):
        estimate.add(5.0)
    assert estimate.p99(10**9 + 200) > 5
    assert estimate.p99(10**9 + 100_000) == 0
    estimate.add(1e6)
    assert estimate.p99(10**9 + 100_001) == 0
