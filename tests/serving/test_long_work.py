"""Long work: few at once, in the order of arrival, given up when nobody waits for it."""

from __future__ import annotations

import asyncio
import threading

import pytest

from gateway.generation import EngineError, ErrorKind
from gateway.serving.long_work import LongWork
from tests.waiting import until


class Held:
    """Works that begin and then wait to be let go."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.left: list[str] = []
        self.go = threading.Event()

    def work(self, name: str):
        def run(left: threading.Event) -> str:
            self.begun.append(name)
            self.go.wait(20)
            if left.is_set():
                self.left.append(name)
            return name

        return run


async def test_few_at_once_and_the_others_in_their_order() -> None:
    held, lane = Held(), LongWork("test", 1)
    works = [asyncio.create_task(lane.run(held.work(name))) for name in "abcd"]
    await until(lambda: len(held.begun) == 1)
    held.go.set()
    assert await asyncio.gather(*works) == list("abcd")
    assert held.begun == list("abcd")


async def test_who_leaves_while_waiting_costs_nothing_and_who_runs_keeps_its_place() -> None:
    held, lane = Held(), LongWork("test", 1)
    first, second, third = (asyncio.create_task(lane.run(held.work(name))) for name in "abc")
    await until(lambda: len(held.begun) == 1)
    first.cancel()
    second.cancel()
    await asyncio.wait((first, second))
    assert held.begun == ["a"]  # the third does not run beside it
    held.go.set()
    assert await third == "c"
    assert (held.begun, held.left) == (["a", "c"], ["a"])


async def test_more_than_may_wait_are_refused_at_once() -> None:
    held, lane = Held(), LongWork("test", 1, most_waiting=1)
    works = [asyncio.create_task(lane.run(held.work(name))) for name in "ab"]
    await until(lambda: len(held.begun) == 1)
    with pytest.raises(EngineError) as caught:
        await lane.run(held.work("c"))
    assert caught.value.kind is ErrorKind.QUEUE_FULL
    held.go.set()
    await asyncio.gather(*works)
    assert await lane.run(held.work("d")) == "d"


async def test_who_waits_when_it_is_closed_goes_on_with_the_error_and_who_comes_is_refused() -> None:
    held, lane = Held(), LongWork("test", 1)
    works = [asyncio.create_task(lane.run(held.work(name))) for name in "abc"]
    await until(lambda: len(held.begun) == 1)
    error = EngineError(ErrorKind.UNAVAILABLE, "Closing.")
    lane.close(error)
    assert await asyncio.gather(*works, return_exceptions=True) == [error] * 3  # before the first is done
    with pytest.raises(EngineError, match="Closing"):
        await lane.run(held.work("d"))
    held.go.set()
    await until(lambda: lane.count == 0)
    assert (held.begun, held.left) == (["a"], ["a"])
    lane.reopen()
    assert await lane.run(held.work("e")) == "e"


async def test_who_waits_too_long_goes_on_with_an_error_and_who_has_begun_does_not() -> None:
    held, lane = Held(), LongWork("test", 1)
    first = asyncio.create_task(lane.run(held.work("a"), 0.01))
    await until(lambda: len(held.begun) == 1)
    with pytest.raises(EngineError, match=r"waited 0\.01 seconds") as caught:
        await lane.run(held.work("b"), 0.01)
    assert caught.value.kind is ErrorKind.TIMEOUT
    held.go.set()
    assert await first == "a"
    assert held.begun == ["a"]
