"""The watch over an engine's requests, with a clock of the test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.generation.gaps import LongGaps
from gateway.generation.health import Belief, EngineCondition, EngineHealth, HealthNote, HealthNotes, HealthRules
from tests.rings import examples

LIMIT = 10.0
SHORT = st.floats(min_value=0.001, max_value=LIMIT * 0.99)


class Answer:
    """A request in flight."""

    def __init__(self, prompt_tokens: int = 1) -> None:
        self.at: float | None = None
        self.prompt_tokens = prompt_tokens
        self.is_lost = False

    def lost(self) -> None:
        self.is_lost = True

    def responded_at(self) -> float | None:
        return self.at


class Situation:
    """A watch that is looked at whenever it wants to be, while requests come, respond and go.

    Attributes:
        now: seconds.
        states: that the watch has told.
        probe: what a probe comes to: a ``token``, ``nothing``, a ``full`` queue, or else the words of a failure.
        probes: when they were sent.
    """

    def __init__(self, silence_s: float = LIMIT, **rules: Any) -> None:
        self.now = 1000.0
        self.watch = EngineHealth(HealthRules(silence_s, **rules), clock=lambda: self.now)
        self.states: list[Belief] = []
        self.watch.reset()
        self.watch.listen(self.states.append)
        self._next_look = self.now
        self.probe = "nothing"
        self.probes: list[float] = []

    def wait(self, seconds: float) -> None:
        end = self.now + seconds
        while self._next_look <= end:
            self.now = max(self.now, self._next_look)
            self.look()
        self.now = end

    def look(self) -> None:
        self._next_look = self.now + self.watch.look()
        if not self.watch.probe_due:
            return
        self.watch.probe_sent()
        self.probes.append(self.now)
        if self.probe != "nothing":
            failure = None if self.probe == "token" else self.probe
            self.watch.probed(failure, queue_full=self.probe == "full")
        self._next_look = self.now + self.watch.look()

    def begin(self, prompt_tokens: int = 1) -> Answer:
        answer = Answer(prompt_tokens)
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
    assert situation.states[0] == "suspect"
    assert (situation.watch.belief == "suspect") is situation.watch.ready


@settings(max_examples=examples(50))
@given(histories(), st.booleans(), st.floats(min_value=0, max_value=1000), st.booleans())
def test_a_response_ends_doubt_and_the_next_silence_raises_it_again(
    found: tuple[Situation, Answer], probed_in_vain: bool, later: float, anew: bool
) -> None:
    situation, silent = found
    situation.wait(LIMIT + 1)
    if probed_in_vain:
        situation.wait(LIMIT + 1)
        assert situation.watch.belief == "stalled"
        assert not situation.watch.ready
    situation.wait(later)
    assert situation.watch.belief != "well"
    situation.respond(situation.begin() if anew else silent)
    situation.wait(LIMIT / 20 + 0.001)
    assert (situation.watch.belief, situation.watch.reason) == ("well", "")
    situation.wait(LIMIT)
    assert situation.watch.belief == "suspect"


def test_a_token_that_was_asked_for_ends_doubt_and_the_stuck_request_raises_none_again() -> None:
    situation = Situation()
    stuck = situation.begun()
    situation.probe = "token"
    situation.wait(LIMIT + 1)
    situation.wait(100 * LIMIT)
    assert situation.states == ["suspect", "well"]
    other = situation.begun()  # what happens to others counts as before
    situation.wait(LIMIT + 1)
    assert situation.states[2:] == ["suspect", "well"]
    situation.watch.ended(other)
    situation.respond(stuck)  # and so does the stuck one, once it goes on
    situation.probe = "nothing"
    situation.wait(LIMIT + 1)
    assert situation.watch.belief == "suspect"


def test_the_reason_says_what_was_seen() -> None:
    situation = Situation()
    situation.begun()
    situation.wait(LIMIT + 1)
    assert "10.0 s" in situation.watch.reason
    assert situation.watch.condition.ready, "a silence by itself proves nothing"
    situation.wait(LIMIT + 1)
    assert situation.watch.reason.endswith("did not respond to the one-token test within 10.5 s")
    assert situation.watch.condition.state == "stalled"


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
    situation.probe = "token"
    situation.look()
    situation.give_up(situation.begin())
    assert situation.watch.belief == "well", "the count begins anew"


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


QUIET = 30.0


def fail(situation: Situation) -> None:
    situation.watch.ended(situation.begin(), failed=True)
    situation.look()


def test_an_engine_that_fails_is_asked_at_its_first_failure_and_out_at_the_second_failed_probe() -> None:
    situation = Situation()
    situation.wait(60)
    situation.probe = "it is broken"
    fail(situation)
    assert (situation.states, len(situation.probes)) == ([], 1)
    situation.wait(1.9)
    assert len(situation.probes) == 1, "one in two seconds at most"
    situation.wait(8)
    assert situation.watch.condition[:2] == (False, "failing")
    assert situation.watch.reason.endswith("it is broken")
    situation.wait(600)
    assert 50 < len(situation.probes) < 70, "it is asked again, ever less often"
    situation.probe = "token"
    situation.wait(11)
    assert situation.watch.condition[:2] == (True, "ready")


def test_a_failure_behind_a_token_that_no_look_has_seen_counts() -> None:
    situation = Situation()
    situation.wait(60)
    situation.probe = "it is broken"
    for answer, failed in ((situation.begin(), True), (situation.begun(), False), (situation.begin(), True)):
        situation.now += 0.001
        answer.at = answer.at and situation.now
        situation.watch.ended(answer, failed=failed)
    situation.look()
    assert len(situation.probes) == 1
    situation.wait(10)
    assert situation.watch.condition[:2] == (False, "failing")


def test_three_failures_in_a_row_of_which_a_probe_is_one_take_it_out() -> None:
    situation = Situation()
    situation.wait(60)
    situation.probe = "it is broken"
    fail(situation)
    assert situation.watch.ready
    fail(situation)
    assert not situation.watch.ready


def test_an_engine_that_gave_a_token_a_moment_ago_is_not_failing_yet() -> None:
    situation = Situation()
    situation.wait(60)
    situation.watch.ended(situation.begun())
    situation.probe = "it is broken"
    for _ in range(3):
        fail(situation)
    assert situation.watch.ready
    situation.wait(9)
    assert not situation.watch.ready


def test_an_engine_that_is_quiet_is_asked_for_one_token() -> None:
    situation = Situation(quiet_s=QUIET)
    situation.probe = "token"
    situation.wait(QUIET * 10.5)
    assert len(situation.probes) == 10
    assert situation.states == []
    situation.probe = "it is broken"
    situation.wait(QUIET + 3)
    assert situation.watch.condition.state == "failing"


def test_a_hung_engine_is_found_although_no_answer_has_begun() -> None:
    situation = Situation(quiet_s=QUIET)
    situation.begin(prompt_tokens=100)
    situation.wait(QUIET + LIMIT + 2)
    assert situation.watch.condition[:2] == (False, "stalled")


def test_a_probe_behind_a_long_prompt_is_given_the_time_to_read_it() -> None:
    situation = Situation(quiet_s=QUIET)
    long = situation.begin(prompt_tokens=10_000)
    situation.wait(QUIET + LIMIT + 99)
    assert situation.watch.ready
    situation.respond(long)
    situation.wait(1)
    assert situation.states == []
    situation.watch.ended(long)
    situation.begin(prompt_tokens=10_000)
    situation.wait(QUIET + LIMIT + 105)
    assert not situation.watch.ready


def test_answers_in_one_piece_are_silent_by_nature() -> None:
    situation = Situation(quiet_s=QUIET)
    situation.watch.reset(one_piece=True)
    answer = situation.begin()
    situation.wait(100 * QUIET)
    assert situation.watch.ready
    situation.watch.ended(answer, given_up=True)
    situation.wait(LIMIT)
    assert situation.watch.condition.state == "stalled", "nothing is before the probe any more"


def test_requests_of_an_engine_that_is_away_end_once_they_are_silent() -> None:
    """A server that is leaving answers no health check, and finishes what runs."""
    situation = Situation()
    finished, silent, unread = situation.begun(), situation.begun(), situation.begin(prompt_tokens=1000)
    situation.watch.lost(EngineCondition(ready=False, state="unreachable", reason="away"))
    for _ in range(12):
        situation.now += 1
        situation.respond(finished)
        situation.watch.end_silent()
    assert (finished.is_lost, silent.is_lost, unread.is_lost) == (False, True, False)
    situation.now += 9
    situation.watch.end_silent()
    assert unread.is_lost


@pytest.mark.parametrize("held", [False, True])
def test_a_full_queue_takes_an_engine_out_only_where_requests_in_it_are_silent(held: bool) -> None:
    situation = Situation(quiet_s=QUIET)
    situation.probe = "full"
    if held:
        situation.begin()
    situation.wait(20 * QUIET)
    assert situation.watch.ready is not held


class Shared:
    """Notes of two processes."""

    def __init__(self) -> None:
        self.written = [HealthNote(), HealthNote()]

    def of(self, index: int) -> HealthNotes:
        shared = self

        class _Notes:
            def write(self, note: HealthNote) -> None:
                shared.written[index] = note

            def others(self) -> list[HealthNote]:
                return [shared.written[1 - index]]

            def close(self) -> None: ...

        return _Notes()


def test_what_one_process_finds_holds_for_all_until_any_hears_a_token() -> None:
    shared = Shared()
    first, second = (Situation(quiet_s=QUIET, turn=turn, notes=shared.of(turn)) for turn in (0, 1))

    def wait(seconds: float) -> None:
        for _ in range(round(seconds * 10)):
            first.wait(0.1)
            second.wait(0.1)

    first.probe = second.probe = "token"
    wait(QUIET * 5)
    assert (len(first.probes), len(second.probes)) == (4, 0), "one of them asks for both"
    first.probe = second.probe = "it is broken"
    wait(QUIET + 5)
    assert first.watch.condition.state == second.watch.condition.state == "failing"
    assert not second.watch.ready
    assert "another worker" in second.watch.reason
    assert not second.probes
    second.watch.ended(second.begun())
    wait(1.2)
    assert first.watch.ready
    assert second.watch.ready


def test_failures_of_another_process_fade_and_those_of_a_former_engine_are_forgotten() -> None:
    shared = Shared()
    first, second = (Situation(quiet_s=QUIET, turn=turn, notes=shared.of(turn)) for turn in (0, 1))
    first.probe = second.probe = "token"
    for _ in range(3):
        fail(first)
    for each in (first, second):
        each.wait(1.5)
        assert each.watch.condition.share == 1
    for each in (first, second):
        each.wait(120)
        assert each.watch.condition.state == "ready", "long after the last failure"
    for _ in range(3):
        fail(first)
    first.watch.reset()
    assert first.watch.condition.state == "ready", "it was started again"


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
