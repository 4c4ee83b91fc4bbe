"""The event loop: faults of the LLM, and its end."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from engines.llmapi.llm_engine import LlmEngine
from engines.llmapi.options import Options
from wire.request import Request
from wire.response import Response

Said = tuple[Request, Any]


class Result:
    """Gives the steps of a list, then waits for ever or raises."""

    def __init__(self, steps: list[Any]) -> None:
        self._steps = steps
        self.outputs = [SimpleNamespace(token_ids=[], logprobs=[], finish_reason=None)]
        self.finished = False
        self.aborted = 0

    def __aiter__(self) -> Result:
        return self

    async def __anext__(self) -> Result:
        if not self._steps:
            await asyncio.Event().wait()
        step = self._steps.pop(0)
        if isinstance(step, BaseException):
            raise step
        self.outputs[0].token_ids.append(step)
        return self

    def abort(self) -> None:
        self.aborted += 1


class Scripted:
    """An LLM that answers with prepared results, or raises prepared errors."""

    def __init__(self) -> None:
        self.results: list[Result | Exception] = []
        self.shut_down = False

    def generate_async(self, **_arguments: Any) -> Result:
        result = self.results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    def shutdown(self) -> None:
        self.shut_down = True


@pytest.fixture
def said() -> queue.Queue[Said]:
    return queue.Queue()


@pytest.fixture
def llm() -> Scripted:
    return Scripted()


@pytest.fixture
def engine(llm, said) -> Iterator[LlmEngine]:
    respond: Callable[[Response], None] = lambda response: said.put((response.request, response))  # noqa: E731
    running = LlmEngine(
        llm,
        SimpleNamespace,
        Options(max_seq_len=50, vocab_size=100, max_batch_size=1, max_queue_size=1),
        applies_penalties=True,
        to_tensor=list,
        on_response=respond,
        on_failure=lambda request, reason: said.put((request, reason)),
    )
    yield running
    if not llm.shut_down:
        running.close()


def request(name: str = "r", **more: Any) -> Request:
    return Request(name, [1, 2], 5, streaming=True, **more)


def test_an_error_at_the_start_is_answered_with_its_first_line(engine, llm, said) -> None:
    llm.results = [ValueError("too long\nTraceback")]
    mine = request()
    engine.submit(mine)
    assert said.get(timeout=5) == (mine, "too long")
    assert engine.active == 0


@pytest.mark.parametrize("error", [RuntimeError("gone"), StopAsyncIteration()])
def test_an_error_on_the_way_aborts_and_is_answered(engine, llm, said, error) -> None:
    result = Result([7, error])
    llm.results = [result]
    engine.submit(request())
    assert said.get(timeout=5)[1].ids == [7]
    assert said.get(timeout=5)[1] in ("gone", "the engine ended without a last answer")
    assert (result.aborted, engine.active) == (1, 0)


def test_one_failure_leaves_the_others_alone(engine, llm, said) -> None:
    llm.results = [RuntimeError("gone"), Result([7])]
    first, second = request("a"), request("b")
    engine.submit(first)
    engine.submit(second)
    assert {said.get(timeout=5)[0], said.get(timeout=5)[0]} == {first, second}
    assert engine.active == 1


def test_close_fails_what_is_in_flight_and_shuts_down(engine, llm, said) -> None:
    result = Result([7])
    llm.results = [result]
    engine.submit(request())
    assert said.get(timeout=5)[1].ids == [7]
    engine.close()
    assert said.get(timeout=5)[1] == "the model is unloading"
    assert (llm.shut_down, result.aborted, engine.active) == (True, 1, 0)
