"""Several generations as one answer: who speaks when, who fails, who is cancelled."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from gateway.generation import EngineChunk, EngineError, SequenceAssembler
from gateway.generation.health import EngineHealth
from gateway.serving.deadlines import Deadlines
from gateway.serving.generation import Generation
from gateway.serving.generation_group import Generations, together
from gateway.telemetry.metrics import Metrics
from gateway.text.prompt.prompt import Prompt
from gateway.text.tokens import Tokenizer
from tests.app.scripted import TOKENS, ByteIds, ScriptedEngine, Step, chunks
from tests.engine_requests import generation_request
from tests.only_way import only_way

PROMPT = Prompt("p", (1, 2, 3))


class Setup:
    """Generations by one engine that does for each request, by its place, what a script says."""

    def __init__(
        self,
        folder: Path,
        scripts: Sequence[list[Step]],
        *,
        max_parallel: int = 16,
        deadlines: Deadlines = Deadlines(60, 60),  # noqa: B008 - frozen
    ) -> None:
        self.engine = ScriptedEngine(lambda request: list(scripts[int(request.id)]), TOKENS)
        self._tokenizer = Tokenizer.from_folder(folder)
        self._max_parallel = max_parallel
        self._deadlines = deadlines
        self._arrived = time.perf_counter()
        self.metrics = Metrics()
        self.generations = [self._generation(index) for index in range(len(scripts))]
        self.choices = together(self.generations)

    def _generation(self, index: int) -> Generation:
        request = generation_request(request_id=str(index), prompt=PROMPT, cached_tokens=True)
        return Generation(
            only_way(self.engine, EngineHealth()),
            request,
            SequenceAssembler(request, self._tokenizer),
            deadlines=self._deadlines,
            metrics=self.metrics.for_model("m"),
            arrived=self._arrived,
            max_parallel=self._max_parallel,
        )


async def texts_of(choices: Generations, count: int) -> tuple[list[str], list[int]]:
    """The text of each choice, and the order in which they ended."""
    texts, ended = [""] * count, []
    while (ready := await choices.ready()) is not None:
        for index, pieces, complete in ready:
            texts[index] += "".join(piece.text for piece in pieces)
            ended += [index] * complete
    return texts, ended


async def test_silence_is_told(folder: Path) -> None:
    never = asyncio.Event()
    async with Setup(folder, [[never], [never]]).choices as choices:
        assert not await choices.wait_for_response(timeout=0.01)


async def test_only_some_run_together(folder: Path) -> None:
    ids = ByteIds(folder)
    words = [f"answer {index}" for index in range(10)]
    gates = [asyncio.Event() for _ in words]
    scripts: list[list[Step]] = [[gate, *chunks(ids.of(word))] for gate, word in zip(gates, words, strict=True)]
    setup = Setup(folder, scripts, max_parallel=3)
    async with setup.choices as choices:
        for index, gate in enumerate(gates):
            assert await choices.ready(timeout=0.001) == []
            assert setup.engine.running == min(3, len(words) - index)
            gate.set()
            ended: list[int] = []
            text = ""
            while not ended:
                for at, pieces, complete in await choices.ready() or []:
                    assert at == index
                    text += "".join(piece.text for piece in pieces)
                    ended += [at] * complete
            assert text == words[index]
        assert await choices.ready() is None
    assert choices.usage().completion_tokens == sum(map(len, words))


async def test_leaving_early_never_begins_those_that_wait(folder: Path) -> None:
    never = asyncio.Event()
    setup = Setup(folder, [[never]] * 5, max_parallel=2)
    async with setup.choices as choices:
        assert not await choices.wait_for_response(timeout=0.001)
    assert sorted(setup.engine.closed_early) == ["0", "1"]
    assert setup.engine.running == 0


async def test_waiting_for_others_is_no_delay_of_the_engine(folder: Path) -> None:
    gate, ids = asyncio.Event(), ByteIds(folder)
    first: list[Step] = [EngineChunk(ids=ids.of("a")), gate, EngineChunk(final=True)]
    never = asyncio.Event()
    setup = Setup(folder, [first, [never]], max_parallel=1, deadlines=Deadlines(0.2, 60))
    async with setup.choices as choices:
        assert await choices.wait_for_response()
        # The first answers for longer than a first token may take: the second waits, and has no deadline yet.
        found = [await choices.ready(timeout=0.15) for _ in range(3)]
        assert [len(each or []) for each in found] == [1, 0, 0]
        gate.set()
        with pytest.raises(EngineError, match=r"returned no token within 0.2 seconds"):
            await texts_of(choices, 2)


async def test_all_are_cancelled_where_whoever_leaves_is_cancelled_himself(folder: Path) -> None:
    never = asyncio.Event()
    setup = Setup(folder, [[never]] * 3)

    async def leaving() -> None:
        async with setup.choices as choices:
            assert not await choices.wait_for_response(timeout=0.001)
            task = asyncio.current_task()
            assert task is not None
            task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(leaving())
    for _ in range(100):  # turns of the loop, in which what was cancelled cleans up
        await asyncio.sleep(0)
    assert sorted(setup.engine.closed_early) == ["0", "1", "2"]
