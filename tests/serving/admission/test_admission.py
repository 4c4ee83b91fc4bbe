"""Who runs and who waits, over shared memory: one admission stands for each of several processes."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
import selectors
import statistics
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.generation import EngineError, ErrorKind
from gateway.serving.admission.admission import Admission, GenerationDemand, QueueTicket
from gateway.serving.admission.shares import RUNNING, SERVED, WAITING, SharedLines, size_of
from gateway.settings.model_settings import AdmissionSettings

MODEL = "model"


@contextlib.asynccontextmanager
async def processes(count: int = 1, **settings: Any) -> AsyncIterator[list[Admission]]:
    """The admissions of one model in so many processes, which share memory and wake each other."""
    cells = memoryview(bytearray(size_of(count) * 8)).cast("q")
    wakers = [os.eventfd(0, os.EFD_NONBLOCK) for _ in range(count)]
    clock = asyncio.get_running_loop().time
    admissions = [
        Admission(MODEL, AdmissionSettings(**settings), SharedLines(count, row, cells, wakers, clock))
        for row in range(count)
    ]
    try:
        yield admissions
        for admission in admissions:
            totals = admission.totals()
            assert (totals.running, totals.waiting) == (0, 0)
    finally:
        for admission in admissions:
            admission.close()
        for waker in wakers:
            os.close(waker)


def demand(caller: str = "", tokens: int = 100, weight: float = 1.0, priority: int = 0) -> GenerationDemand:
    return GenerationDemand(caller, weight, tokens, priority)


class Line:
    """Requests that wait, and the order in which they get their turn."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self.running: list[tuple[str, QueueTicket]] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def ask(self, admission: Admission, name: str, wanted: GenerationDemand) -> asyncio.Task[None]:
        async def wait() -> None:
            ticket = await admission.enter(wanted)
            self.order.append(name)
            self.running.append((name, ticket))

        task = asyncio.create_task(wait())
        self.tasks.append(task)
        for _ in range(3):
            await asyncio.sleep(0)
        return task

    async def end_one(self, used: int | None = None) -> None:
        """End the oldest that runs, and wait until another has its turn, if any waits."""
        before = len(self.order)
        _, ticket = self.running.pop(0)
        ticket.leave(ticket.demand.tokens if used is None else used)
        for _ in range(200):
            await asyncio.sleep(0.001 if before == len(self.order) else 0)
            if len(self.order) > before or all(task.done() for task in self.tasks):
                return

    async def end_all(self) -> None:
        while self.running:
            await self.end_one()


async def test_so_many_run_and_the_others_wait_in_their_order() -> None:
    async with processes(max_running=2) as (admission,):
        line = Line()
        for name in "abcd":
            await line.ask(admission, name, demand())
        assert line.order == ["a", "b"]
        totals = admission.totals()
        assert (totals.running, totals.waiting, totals.limit) == (2, 2, 2)
        await line.end_all()
        assert line.order == ["a", "b", "c", "d"]


@pytest.mark.parametrize("count", [1, 4])
async def test_a_polite_caller_is_next_whatever_a_flood_has_queued(count: int) -> None:
    async with processes(count, max_running=2) as admissions:
        line = Line()
        for index in range(40):
            await line.ask(admissions[index % count], f"flood {index}", demand("flood"))
        for turn in range(3):
            await line.end_one()
            await line.ask(admissions[turn % count], f"polite {turn}", demand("polite"))
            before = len(line.order)
            await line.end_one()
            assert line.order[before:] == [f"polite {turn}"]
        await line.end_all()


@pytest.mark.parametrize("count", [1, 4])
async def test_callers_have_tokens_by_their_weights(count: int) -> None:
    async with processes(count, max_running=1) as admissions:
        line = Line()
        for index in range(60):
            process = admissions[index % count]
            await line.ask(process, "light", demand("light", tokens=50))
            await line.ask(process, "heavy", demand("heavy", tokens=200))
            await line.ask(process, "double", demand("double", tokens=100, weight=2.0))
        for _ in range(84):
            await line.end_one()
        tokens = {"light": 50, "heavy": 200, "double": 100}
        given = {name: times * tokens[name] for name, times in Counter(line.order).items()}
        assert given["heavy"] == pytest.approx(given["light"], abs=400)
        assert given["double"] == pytest.approx(2 * given["light"], abs=400)
        await line.end_all()


async def test_what_an_answer_did_not_use_is_given_back() -> None:
    """One asks for long answers and gets short ones: it has as many turns as one that asks for short ones."""
    async with processes(max_running=1) as (admission,):
        line = Line()
        for _ in range(30):
            await line.ask(admission, "boaster", demand("boaster", tokens=100_000))
            await line.ask(admission, "modest", demand("modest", tokens=100))
        for _ in range(30):
            await line.end_one(used=100)
        turns = Counter(line.order)
        assert abs(turns["boaster"] - turns["modest"]) <= 2
        while line.running:
            await line.end_one(used=100)


async def test_nobody_saves_up_for_later_or_pays_for_quiet_times() -> None:
    async with processes(max_running=1) as (admission,):
        line = Line()
        for _ in range(50):  # nobody else is there
            await line.ask(admission, "early", demand("early", tokens=1000))
            await line.end_one()
        for _ in range(10):
            await line.ask(admission, "late", demand("late", tokens=1000))
            await line.ask(admission, "early", demand("early", tokens=1000))
        line.order.clear()
        for _ in range(10):
            await line.end_one()
        turns = Counter(line.order)
        assert abs(turns["early"] - turns["late"]) <= 1
        await line.end_all()


async def test_priorities_order_the_requests_of_one_caller_only() -> None:
    async with processes(max_running=1) as (admission,):
        line = Line()
        await line.ask(admission, "first", demand("a"))
        for priority in (5, 0, -3):
            await line.ask(admission, f"a {priority}", demand("a", priority=priority))
        await line.ask(admission, "b", demand("b", priority=9))
        await line.end_all()
        assert line.order == ["first", "b", "a -3", "a 0", "a 5"]


@pytest.mark.parametrize("count", [1, 4])
async def test_one_that_leaves_is_out_at_once(count: int) -> None:
    async with processes(count, max_running=1) as admissions:
        line = Line()
        await line.ask(admissions[0], "runs", demand())
        gone = [await line.ask(admissions[index % count], "gone", demand()) for index in range(8)]
        await line.ask(admissions[-1], "stays", demand())
        for task in gone:
            task.cancel()
        await asyncio.gather(*gone, return_exceptions=True)
        assert admissions[0].totals().waiting == 1
        await line.end_one()
        assert line.order == ["runs", "stays"]
        await line.end_all()


async def test_one_that_leaves_as_its_turn_comes_takes_no_place() -> None:
    async with processes(max_running=1) as (admission,):
        line = Line()
        await line.ask(admission, "runs", demand())
        leaves = await line.ask(admission, "leaves", demand())
        line.running.pop()[1].leave(1)  # its turn has come, and its task has not run yet
        leaves.cancel()
        await asyncio.gather(leaves, return_exceptions=True)
        assert line.order == ["runs"]


async def test_a_full_queue_refuses_the_greediest() -> None:
    async with processes(max_running=1, max_waiting=6) as (admission,):
        line, rejected = Line(), Counter[str]()
        admission.rejected = lambda reason: rejected.update([reason])
        await line.ask(admission, "runs", demand("flood"))
        flood = [await line.ask(admission, f"flood {index}", demand("flood")) for index in range(6)]
        again = await line.ask(admission, "one more", demand("flood"))
        with pytest.raises(EngineError, match="Too many requests are waiting") as refusal:
            await again
        assert refusal.value.kind is ErrorKind.QUEUE_FULL
        assert refusal.value.retry_after_s == 1
        polite = await line.ask(admission, "polite", demand("polite"))
        with pytest.raises(EngineError, match="most of them from the same caller"):
            await flood[-1]  # the newest
        assert not polite.done()
        assert rejected == {"full": 2}
        line.tasks.remove(again)
        line.tasks.remove(flood[-1])
        await line.end_all()
        assert line.order[:2] == ["runs", "polite"]
        assert len(line.order) == 7


async def test_a_queue_is_bounded_in_tokens() -> None:
    async with processes(max_running=1, max_waiting_tokens=1000) as (admission,):
        line = Line()
        await line.ask(admission, "runs", demand())
        await line.ask(admission, "alone", demand(tokens=5000))  # it would be refused for ever else
        with pytest.raises(EngineError, match="Too many requests are waiting"):
            await admission.enter(demand(tokens=1))
        await line.end_all()


async def test_a_wait_that_is_too_long_ends_with_when_to_come_again() -> None:
    async with processes(max_running=1, max_wait_s=0.05) as (admission,):
        line = Line()
        await line.ask(admission, "runs", demand())
        with pytest.raises(EngineError, match=r"waited for 0\.05 s") as refusal:
            await admission.enter(demand())
        assert refusal.value.retry_after_s == 1
        await line.end_all()


async def test_those_that_wait_while_the_limit_changes_are_held_to_the_new_one() -> None:
    shares = SharedLines()
    former = Admission(MODEL, AdmissionSettings(max_running=1), shares)
    line = Line()
    for name in "abc":
        await line.ask(former, name, demand())
    former.successor = Admission(MODEL, AdmissionSettings(max_running=3), shares)
    await asyncio.wait(line.tasks, timeout=5)
    assert line.order == ["a", "b", "c"]
    await line.end_all()
    former.close()


async def test_one_that_is_refused_as_its_turn_comes_takes_no_place() -> None:
    async with processes(max_running=1, max_wait_s=0.05) as (admission,):
        running = await admission.enter(demand())
        waiting = asyncio.create_task(admission.enter(demand()))
        await asyncio.sleep(0.01)
        loop = asyncio.get_running_loop()
        rejected = asyncio.Event()

        def told(_: str) -> None:  # a turn comes after the refusal, and before the task that was refused has run
            loop.call_soon(running.leave, 0)
            rejected.set()

        admission.rejected = told
        await rejected.wait()
        with pytest.raises(EngineError) as error:
            await waiting
        assert error.value.kind is ErrorKind.QUEUE_FULL
        assert admission.totals().running == 0


async def test_when_to_come_again_follows_from_the_rate_of_ends() -> None:
    now = 100.0
    shares = SharedLines(clock=lambda: now)
    admission = Admission(MODEL, AdmissionSettings(max_running=1, max_waiting=20), shares)
    line = Line()
    await line.ask(admission, "runs", demand("a"))
    for index in range(20):
        await line.ask(admission, f"{index}", demand("a"))
    for _ in range(5):  # an answer every two seconds
        admission._note_ends()
        now += 2.0
        await line.end_one()
        await line.ask(admission, "again", demand("a"))
    with pytest.raises(EngineError) as refusal:
        await admission.enter(demand("a"))
    assert refusal.value.retry_after_s == 40  # twenty wait
    await line.end_all()
    admission.close()


async def test_the_requests_of_a_process_that_died_or_hangs_hold_nobody_up() -> None:
    async with processes(3, max_running=1) as (one, hangs, died):
        line = Line()
        await line.ask(died, "of the dead", demand())
        await line.ask(one, "waits", demand())
        died._shares.clear(2)  # as the supervisor does
        await asyncio.wait_for(line.tasks[-1], 5)
        lost = Line()
        await lost.ask(hangs, "never looked at", demand())
        hangs.close()  # its loop no longer runs
        await line.ask(one, "after it", demand())
        line.running.pop()[1].leave(1)
        await asyncio.wait_for(line.tasks[-1], 5)
        assert line.order == ["of the dead", "waits", "after it"]
        lost.tasks[0].cancel()
        await asyncio.gather(*lost.tasks, return_exceptions=True)
        line.running.pop()[1].leave(1)


async def test_more_callers_than_there_is_room_for_share_a_place() -> None:
    async with processes(max_running=1) as (admission,):
        line = Line()
        await line.ask(admission, "runs", demand())
        for index in range(600):
            await line.ask(admission, str(index), demand(f"caller {index}"))
        await line.end_all()
        assert sorted(line.order[1:], key=int) == [str(index) for index in range(600)]


@pytest.mark.parametrize("busy", [False, True])
def test_models_that_come_after_hundreds_of_callers_have_places_of_their_own(busy: bool) -> None:
    cells = memoryview(bytearray(size_of(2) * 8)).cast("q")
    mine, other = SharedLines(2, 0, cells), SharedLines(2, 1, cells)
    other.line(7, 8)[RUNNING] = 3
    for caller in range(1000):
        mine.line(1, 1000 + caller)[RUNNING] = int(busy)
    for model in range(100, 120):  # as reloads bring them
        mine.line(model)[RUNNING] = model
        mine.line(model, 5)[RUNNING] = 1
    for model in range(100, 120):
        assert sum(entry.running for entry in mine.entries(model)) == model + 1
    assert [entry.running for entry in mine.entries(7)] == [3]


_WRITTEN = st.sampled_from((SERVED, WAITING, RUNNING))
_CHANGES = st.tuples(st.integers(0, 2), st.integers(2, 4), st.integers(0, 3), _WRITTEN)  # process, model, caller, field


@given(st.lists(st.one_of(_CHANGES, st.integers(0, 2)), max_size=60))
def test_each_process_sums_what_all_have_written(changes: list[tuple[int, int, int, int] | int]) -> None:
    """A number among the changes is a process that dies and is begun again."""
    cells = memoryview(bytearray(size_of(3) * 8)).cast("q")
    every = [SharedLines(3, row, cells) for row in range(3)]
    reader = every[0]
    for number, change in enumerate(changes, 1):
        if isinstance(change, int):
            reader.clear(change)
            every[change] = SharedLines(3, change, cells)
            continue
        row, model, caller, field = change
        every[row].line(model, caller)[field] = number
        own, line = reader.line(model), reader.line(model, caller)
        entries = list(reader.entries(model))
        alone = [entry for entry in entries if not entry.caller]
        assert reader.sums(own, line) == (
            sum(entry.running for entry in alone),
            sum(entry.waiting for entry in alone),
            sum(entry.served for entry in entries if caller and entry.caller == caller),
            max(entry.served for entry in alone),
        )
        assert reader.waiting(own) == sum(entry.waiting for entry in alone)


async def test_without_a_limit_nobody_waits() -> None:
    async with processes(max_running=0) as (admission,):
        tickets = [await admission.enter(demand()) for _ in range(1000)]
        assert admission.totals().running == 1000
        for ticket in tickets:
            ticket.leave(1)


async def test_what_ran_without_a_limit_counts_for_nobody_once_there_is_one() -> None:
    limit: int | None = None
    admission = Admission(MODEL, AdmissionSettings(), SharedLines(), lambda: limit)
    for _ in range(100):
        (await admission.enter(demand("busy", tokens=1000))).leave(1000)
    limit = 1
    line = Line()
    await line.ask(admission, "runs", demand("runs"))
    await line.ask(admission, "first", demand("busy"))
    await line.ask(admission, "second", demand("idle"))
    await line.end_all()
    assert line.order == ["runs", "first", "second"]
    admission.close()


async def test_a_flood_in_one_process_does_not_close_the_queue_to_others() -> None:
    async with processes(2, max_running=1, max_waiting=6) as (one, other):
        line = Line()
        await line.ask(one, "runs", demand("flood"))
        for index in range(6):
            await line.ask(one, f"flood {index}", demand("flood"))
        polite = await line.ask(other, "polite", demand("polite"))
        assert not polite.done()
        await line.end_all()
        assert line.order[:2] == ["runs", "polite"]


async def test_room_for_many_tokens_is_made_by_as_many_requests_as_it_takes() -> None:
    async with processes(max_running=1, max_waiting_tokens=600) as (admission,):
        line = Line()
        await line.ask(admission, "runs", demand("flood"))
        flood = [await line.ask(admission, f"flood {index}", demand("flood")) for index in range(6)]
        polite = await line.ask(admission, "polite", demand("polite", tokens=250))
        assert not polite.done()
        rejected = await asyncio.gather(*flood[3:], return_exceptions=True)
        assert all(isinstance(each, EngineError) for each in rejected)
        for each in flood[3:]:
            line.tasks.remove(each)
        await line.end_all()
        assert len(line.order) == 5


SLOTS = 8
ANSWER_S = 0.8


class TimersAlone(selectors.SelectSelector):
    """Advances the time of an event loop to its next timer instead of waiting for it."""

    now = 1000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(timeout and 0)
        self.now += 0.0 if ready else timeout or 0.0
        return ready


def in_virtual_time(work: Coroutine[Any, Any, None]) -> None:
    selector = TimersAlone()
    loop = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: selector.now  # type: ignore[method-assign]
    try:
        loop.run_until_complete(work)
    finally:
        loop.close()


class Answers:
    """Takes slots of admissions, and notes for how long."""

    def __init__(self, admissions: list[Admission]) -> None:
        self._admissions = itertools.cycle(admissions)
        self._slots: list[tuple[float, float]] = []
        self._now = asyncio.get_running_loop().time

    async def give(self, caller: str, seconds: float) -> float:
        """Wait for a slot and hold it for so long; the seconds from the request to its end."""
        asked = self._now()
        ticket = await next(self._admissions).enter(demand(caller))
        began = self._now()
        try:
            await asyncio.sleep(seconds)
        finally:
            ticket.leave(100)
            self._slots.append((began, self._now()))
        return self._now() - asked

    async def polite(self, times: int, pause_s: float) -> list[float]:
        took = []
        for _ in range(times):
            await asyncio.sleep(pause_s)
            took.append(await self.give("polite", ANSWER_S))
        return took

    @contextlib.asynccontextmanager
    async def flood(self, lengths: Sequence[float], together: int = 1) -> AsyncIterator[None]:
        chosen = random.Random(0)

        async def one() -> None:
            while True:
                await asyncio.gather(*(self.give("flood", chosen.choice(lengths)) for _ in range(together)))

        flooding = [asyncio.ensure_future(one()) for _ in range(160 // together)]
        yield
        for each in flooding:
            each.cancel()
        await asyncio.gather(*flooding, return_exceptions=True)
        await asyncio.sleep(0)

    def used(self, begin: float, end: float) -> float:
        """The part of the slots' time between two moments in which they were held."""
        held = sum(max(0.0, min(end, until) - max(begin, since)) for since, until in self._slots)
        return held / SLOTS / (end - begin)


@pytest.mark.parametrize(
    ("count", "together", "pause_s", "flood_s"),
    [
        *itertools.product([1, 4], [1, 8], [0.0, 0.05, 0.4], [ANSWER_S]),
        *itertools.product([1], [1], [0.0, 0.05, 0.4], [10 * ANSWER_S]),
    ],
)
def test_who_pauses_waits_for_a_part_of_an_answer_or_for_one_longer_one(
    count: int, together: int, pause_s: float, flood_s: float
) -> None:
    """Beside a flood of equal answers which began together, and so would end together, too."""

    async def test() -> None:
        async with processes(count, max_running=SLOTS) as admissions:
            answers = Answers(admissions)
            async with answers.flood([flood_s], together):
                took = await answers.polite(9, pause_s)
        if flood_s == ANSWER_S:
            assert statistics.median(took) < 1.5 * ANSWER_S, took
        assert max(took) <= flood_s + ANSWER_S + 0.001, took

    in_virtual_time(test())


@pytest.mark.parametrize(
    ("count", "lengths"),
    [(1, [0.4, 1.2, 2.0]), (1, [0.1, 0.2, 0.4, 0.8, 1.6, 3.2]), (4, [0.1, 0.2, 0.4, 0.8, 1.6, 3.2])],
)
def test_answers_of_mixed_lengths_leave_no_slot_idle(count: int, lengths: list[float]) -> None:
    """None where another caller was there a while ago, and hardly any beside one."""

    async def test() -> None:
        now = asyncio.get_running_loop().time
        async with processes(count, max_running=SLOTS) as admissions:
            answers = Answers(admissions)
            async with answers.flood(lengths):
                moments = [now()]
                await answers.polite(20, 0.4)
                moments.append(now())
                await asyncio.sleep(12)
                moments.append(now())
                await asyncio.sleep(20)
                moments.append(now())
        assert answers.used(moments[0], moments[1]) > 0.98
        assert answers.used(moments[2], moments[3]) == pytest.approx(1)

    in_virtual_time(test())
