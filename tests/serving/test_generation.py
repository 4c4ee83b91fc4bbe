"""A generation in flight, below HTTP: slow readers, early leavers, deadlines, what it leaves behind."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from gateway.generation import EngineChunk, EngineError, ErrorKind, GenerationRequest, Piece, SequenceAssembler
from gateway.generation.health import EngineHealth, HealthRules
from gateway.generation.relay.interface import Began, Forward, Take
from gateway.generation.route import EngineLookup, SingleRoute
from gateway.serving import generation as module
from gateway.serving.deadlines import Deadlines
from gateway.serving.generation import Generation
from gateway.telemetry.metrics import Metrics
from gateway.text.prompt.prompt import Prompt
from gateway.text.tokens import Tokenizer
from tests.app.scripted import TOKENS, ByteIds, RelayingEngine, Script, ScriptedEngine, chunks
from tests.engine_requests import generation_request
from tests.only_way import only_way

LONG = Deadlines(first_token_s=60, total_s=60)
SILENCE_S = 0.5
GAP_S = SILENCE_S / 10


class Setup:
    """Generations over one scripted engine, with their metrics."""

    def __init__(self, folder: Path, script: Script, deadlines: Deadlines = LONG, stop: tuple[str, ...] = ()) -> None:
        self.engine = ScriptedEngine(script, TOKENS)
        self.metrics = Metrics()
        self.health = EngineHealth(HealthRules(SILENCE_S))
        self._tokenizer = Tokenizer.from_folder(folder)
        self._deadlines = deadlines
        self._stop = stop

    def start(self, engine: Any = None, draft: Sequence[int] = ()) -> Generation:
        request = generation_request("r", Prompt("p", (1, 2)), max_tokens=10_000, stop=self._stop, draft=tuple(draft))
        return Generation(
            only_way(engine or self.engine, self.health),
            request,
            SequenceAssembler(request, self._tokenizer),
            deadlines=self._deadlines,
            metrics=self.metrics.for_model("m"),
            arrived=time.perf_counter(),
        )

    def value(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(name, {"model": "m", **labels})


async def pieces_of(
    generation: Generation, timeout: float | None = None, forward: Forward | None = None
) -> list[Piece] | None:
    """The pieces that are ready, none after the silence, None at the end."""
    ready = await generation.ready(timeout, forward)
    pieces = None if ready is None else [piece for _, pieces, _ in ready for piece in pieces]
    return None if ready and not pieces else pieces


async def text_of(generation: Generation) -> str:
    texts = []
    while (pieces := await pieces_of(generation)) is not None:
        texts += [piece.text for piece in pieces]
    return "".join(texts)


async def test_all_that_is_ready_comes_at_once_and_none_at_the_end(folder: Path) -> None:
    gate = asyncio.Event()
    ids = ByteIds(folder).of("abc")
    setup = Setup(
        folder,
        lambda _: [EngineChunk(ids=[ids[0]]), EngineChunk(ids=[ids[1]]), gate, EngineChunk(ids=[ids[2]], final=True)],
    )
    async with setup.start() as generation:
        assert await generation.wait_for_response()
        first = await pieces_of(generation)
        assert first is not None
        assert [piece.text for piece in first] == ["a", "b"]
        assert await pieces_of(generation, timeout=0.01) == []
        gate.set()
        assert await text_of(generation) == "c"
        assert await pieces_of(generation) is None
        assert generation.assembler.finish_reason == "stop"
    assert setup.value("gateway_completion_tokens_total") == 3
    assert setup.value("gateway_requests_in_flight") == 0
    assert setup.value("gateway_requests_cancelled_total") == 0


async def test_what_became_of_predictions_is_counted_for_whole_answers(folder: Path) -> None:
    ids, never = ByteIds(folder), asyncio.Event()
    scripts = iter([[EngineChunk(ids=ids.of("abc"), final=True)], [EngineChunk(ids=ids.of("a")), never]])
    setup = Setup(folder, lambda _: next(scripts))

    def counted() -> list[float | None]:
        name = "gateway_predicted_tokens_total"
        return [setup.value(name, outcome=outcome) for outcome in ("accepted", "rejected")]

    async with setup.start(draft=ids.of("abXY.")) as whole:
        assert counted() == [0, 0]
        assert await text_of(whole) == "abc"
    assert counted() == [2, 3]
    async with setup.start(draft=ids.of("abc")) as left:
        assert await left.wait_for_response()
    assert counted() == [2, 3], "nobody knows how the answer would have gone on"


@pytest.mark.parametrize("deadlines", [Deadlines(0.02, 60), Deadlines(60, 0.02), Deadlines(0, 0)])
async def test_deadlines_end_the_engine_too(folder: Path, deadlines: Deadlines) -> None:
    never = asyncio.Event()
    setup = Setup(folder, lambda _: [never], deadlines)
    async with setup.start() as generation:
        with pytest.raises(EngineError) as caught:
            await generation.wait_for_response()
        assert caught.value.kind is ErrorKind.TIMEOUT
    assert setup.engine.running == 0
    assert setup.value("gateway_engine_failures_total", kind="timeout") == 1


async def test_the_first_token_deadline_ends_with_the_first_response(folder: Path) -> None:
    gate = asyncio.Event()
    setup = Setup(folder, lambda _: [EngineChunk(), gate, *chunks(ByteIds(folder).of("a"))], Deadlines(0.05, 60))
    async with setup.start() as generation:
        assert await generation.wait_for_response()
        assert await pieces_of(generation, timeout=0.1) == []
        gate.set()
        assert await text_of(generation) == "a"


async def test_an_engine_that_never_acknowledges_a_cancel_does_not_hold_the_answer(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CLEANUP_S", 0.02)
    ids, acknowledged = ByteIds(folder).of("a."), asyncio.Event()

    class Deaf(ScriptedEngine):
        async def generate(self, _: GenerationRequest) -> AsyncGenerator[EngineChunk, None]:
            try:
                yield EngineChunk(ids=ids)
                yield EngineChunk(final=True)
            finally:
                await acknowledged.wait()

    setup = Setup(folder, lambda _: [], stop=(".",))
    async with setup.start(Deaf(lambda _: [])) as generation:
        assert await text_of(generation) == "a"
    acknowledged.set()
    assert setup.value("gateway_requests_in_flight") == 0
    (left,) = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    await left


def shown_by(piece: Piece | str) -> str:
    return piece if isinstance(piece, str) else piece.text


async def test_tokens_are_pushed_past_the_reading_task_in_order(folder: Path) -> None:
    ids = ByteIds(folder)
    script: list[Any] = [EngineChunk(ids=ids.of(text)) for text in ("a", "bc", "dé", "f")] + [EngineChunk(final=True)]
    setup = Setup(folder, lambda _: script)
    setup.engine = RelayingEngine(lambda _: script, TOKENS)
    shown: list[list[str]] = []

    def forward(pieces: Sequence[Piece | str]) -> None:
        shown.append([shown_by(piece) for piece in pieces])

    async with setup.start() as generation:
        assert await generation.wait_for_response()
        while (pieces := await pieces_of(generation, forward=forward)) is not None:
            shown.append([shown_by(piece) for piece in pieces])
        assert generation.assembler.usage.completion_tokens == 7
    assert "".join(text for texts in shown for text in texts) == "abcdéf"
    assert ["b", "c"] in shown  # in one go
    assert setup.value("gateway_inter_token_seconds_count") == 6


async def test_nothing_is_pushed_to_a_client_without_room(folder: Path) -> None:
    room = asyncio.Event()
    ids = ByteIds(folder).of("abcdef")
    shown, rejected = "", 0

    class Engine(ScriptedEngine):
        async def generate_relayed(
            self, _request: GenerationRequest, take: Take, began: Began
        ) -> AsyncGenerator[EngineChunk, None]:
            nonlocal rejected
            began(lambda: None)
            yield EngineChunk((ids[0],))
            await forwarding.wait()
            for index in ids[1:]:
                if not take([index]):
                    rejected += 1
                    if rejected == 1:
                        asyncio.get_running_loop().call_soon(room.set)
                    yield EngineChunk((index,))
            yield EngineChunk(final=True)

    def forward(pieces: Sequence[Piece | str]) -> Callable[[], Awaitable[object]] | None:
        nonlocal shown
        shown += "".join(map(shown_by, pieces))
        return None if room.is_set() else room.wait

    forwarding = asyncio.Event()
    setup = Setup(folder, lambda _: [])
    setup.engine = Engine(lambda _: [], TOKENS)
    async with setup.start() as generation:
        first = await pieces_of(generation)
        assert first is not None
        shown += first[0].text
        asyncio.get_running_loop().call_soon(forwarding.set)
        while (pieces := await pieces_of(generation, forward=forward)) is not None:  # type: ignore[arg-type]
            shown += "".join(piece.text for piece in pieces)
    assert rejected == 1
    assert shown == "abcdef"


async def test_a_stop_string_is_looked_for_in_what_could_be_pushed(folder: Path) -> None:
    ids = ByteIds(folder).of("one STOP two")
    script: list[Any] = [EngineChunk(ids=[index]) for index in ids] + [EngineChunk(final=True)]
    setup = Setup(folder, lambda _: script, stop=("STOP",))
    setup.engine = RelayingEngine(lambda _: script, TOKENS)
    shown: list[str] = []

    def forward(pieces: Sequence[Piece | str]) -> None:
        shown.extend(map(shown_by, pieces))

    async with setup.start() as generation:
        while (pieces := await pieces_of(generation, forward=forward)) is not None:
            forward(pieces)
    assert "".join(shown) == "one "


class CancellableEngine(ScriptedEngine):
    """One token, then silence until the request is cancelled; remembers whether its iteration was."""

    interrupted = False

    async def generate_relayed(
        self, _request: GenerationRequest, _take: Take, began: Began
    ) -> AsyncGenerator[EngineChunk, None]:
        cancelled = asyncio.Event()
        began(cancelled.set)
        try:
            yield EngineChunk((1,))
            await cancelled.wait()
        except asyncio.CancelledError:
            self.interrupted = True
            raise
        finally:
            self.left.set()
        raise EngineError(ErrorKind.CANCELLED, "cancelled")


@pytest.mark.parametrize("how", ["left", "aborted", "late"])
async def test_a_request_that_waits_for_its_engine_is_cancelled_there(folder: Path, how: str) -> None:
    deadlines = Deadlines(first_token_s=60, total_s=0.05 if how == "late" else 60)
    setup = Setup(folder, lambda _: [], deadlines)
    engine = setup.engine = CancellableEngine(lambda _: [], TOKENS)
    async with setup.start() as generation:
        assert await generation.wait_for_response()
        assert await pieces_of(generation)
        if how == "aborted":
            generation.abort(EngineError(ErrorKind.UNAVAILABLE, "closing"))
        if how != "left":
            with pytest.raises(EngineError) as error:
                await pieces_of(generation)
            assert error.value.kind is (ErrorKind.TIMEOUT if how == "late" else ErrorKind.UNAVAILABLE)
    await asyncio.wait_for(engine.left.wait(), 5)
    assert not engine.interrupted
    assert setup.value("gateway_requests_in_flight") == 0


async def test_a_client_that_leaves_as_its_engine_dies_sends_nothing_elsewhere(folder: Path) -> None:
    class Dying(RelayingEngine):
        async def generate_relayed(
            self, request: GenerationRequest, take: Take | None, began: Began | None
        ) -> AsyncGenerator[EngineChunk, None]:
            del request, take
            assert began is not None
            cancelled = asyncio.Event()
            began(cancelled.set)
            await cancelled.wait()
            raise EngineError(ErrorKind.UNAVAILABLE, "It was lost at this moment.")
            yield

    tried = []

    class Movable(SingleRoute):
        async def elsewhere(self, error: EngineError) -> SingleRoute | None:
            tried.append(error)
            return None

    setup = Setup(folder, lambda _: [])
    route = Movable(Dying(lambda _: [], TOKENS), setup.health)

    async def find() -> SingleRoute:
        return route

    generation = setup.start()
    generation._lookup = EngineLookup(find, lambda found: found.engine)
    async with generation:
        assert not await generation.wait_for_response(0.01)
    assert not tried
    assert setup.value("gateway_requests_in_flight") == 0


STALLED = Deadlines(first_token_s=60, total_s=60, between_tokens_s=0.05)


@pytest.mark.parametrize("forwarded", [False, True])
async def test_an_engine_that_stalls_is_given_up_and_no_other_is(folder: Path, forwarded: bool) -> None:
    setup = Setup(folder, lambda _: [], STALLED)
    engine = setup.engine = CancellableEngine(lambda _: [], TOKENS)
    gate = asyncio.Event()
    late = ScriptedEngine(lambda _: [gate, *chunks(ByteIds(folder).of("late"))], TOKENS)  # its first response is
    async with setup.start() as generation, setup.start(late) as other:
        assert await pieces_of(generation)
        with pytest.raises(EngineError) as error:
            await pieces_of(generation, forward=(lambda _: None) if forwarded else None)
        assert error.value.kind is ErrorKind.TIMEOUT
        await asyncio.wait_for(engine.left.wait(), 5)
        assert not engine.interrupted
        gate.set()
        assert await text_of(other) == "late"
    assert setup.value("gateway_engine_failures_total", kind="timeout") == 1
    assert setup.value("gateway_completion_tokens_total") == 5
    assert setup.value("gateway_requests_in_flight") == 0


@pytest.mark.parametrize("how", ["forwarded", "collected"])
async def test_a_client_that_is_slow_is_no_engine_that_stalls(
    folder: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_READY", 1)
    setup = Setup(folder, lambda _: chunks(ByteIds(folder).of("abcd")), STALLED)
    slow = 3 * STALLED.between_tokens_s
    shown = ""

    def forward(pieces: Sequence[Piece | str]) -> Callable[[], Awaitable[object]]:
        nonlocal shown
        shown += "".join(map(shown_by, pieces))
        return lambda: asyncio.sleep(slow)

    async with setup.start() as generation:
        while (pieces := await pieces_of(generation, forward=forward if how == "forwarded" else None)) is not None:
            shown += "".join(piece.text for piece in pieces)
            await asyncio.sleep(slow)
    assert shown == "abcd"


async def test_an_engine_whose_text_is_held_back_does_not_stall(folder: Path) -> None:
    """What counts is when the engine says something, and not when the client hears of it."""
    ids = ByteIds(folder).of("0123456789")

    class Slow(ScriptedEngine):
        async def generate(self, _: GenerationRequest) -> AsyncGenerator[EngineChunk, None]:
            for index in ids:
                await asyncio.sleep(0.1)
                yield EngineChunk([index])
            yield EngineChunk(final=True)

    deadlines = Deadlines(first_token_s=60, total_s=60, between_tokens_s=0.7)
    setup = Setup(folder, lambda _: [], deadlines, stop=("0123456789!",))
    async with setup.start(Slow(lambda _: [])) as generation:
        assert await text_of(generation) == "0123456789"


async def test_a_gateway_that_was_held_up_does_not_blame_the_engine(folder: Path) -> None:
    gate = asyncio.Event()
    ids = ByteIds(folder).of("ab")
    deadlines = Deadlines(first_token_s=60, total_s=60, between_tokens_s=0.2)
    setup = Setup(folder, lambda _: [EngineChunk([ids[0]]), gate, EngineChunk([ids[1]], final=True)], deadlines)
    async with setup.start() as generation:
        assert await pieces_of(generation)
        time.sleep(1)  # noqa: ASYNC251 - as whatever holds the event loop
        asyncio.get_running_loop().call_later(0.001, gate.set)  # what came in the meantime is read after the timers
        assert await text_of(generation) == "b"


async def test_leaving_while_a_client_has_no_room_ends_the_request(folder: Path) -> None:
    ids = ByteIds(folder).of("abc")
    gate, waiting = asyncio.Event(), asyncio.Event()
    script: list[Any] = [EngineChunk(ids=ids[:1]), gate, EngineChunk(ids=[ids[1]]), EngineChunk(ids=[ids[2]])]
    setup = Setup(folder, lambda _: [*script, asyncio.Event()])
    engine = setup.engine = RelayingEngine(lambda _: [*script, asyncio.Event()], TOKENS)

    async def wait_for_room() -> None:
        waiting.set()
        await asyncio.Event().wait()

    async with setup.start() as generation:
        assert await pieces_of(generation)
        reader = asyncio.create_task(pieces_of(generation, forward=lambda _: wait_for_room))
        await asyncio.sleep(0)  # let it wait
        gate.set()
        await asyncio.wait_for(waiting.wait(), 5)
        reader.cancel()
    await asyncio.wait_for(engine.left.wait(), 5)
    assert engine.running == 0


@pytest.mark.parametrize("forwarded", [False, True])
async def test_the_watch_hears_each_response_and_is_told_of_long_gaps(folder: Path, forwarded: bool) -> None:
    ids = ByteIds(folder).of("abc")
    gates = [asyncio.Event(), asyncio.Event()]
    script: list[Any] = [EngineChunk(ids[:1]), gates[0], EngineChunk(ids[1:2]), gates[1], EngineChunk(final=True)]
    setup = Setup(folder, lambda _: script)
    progress, shown = setup.health, asyncio.Event()
    progress.responses = setup.metrics.for_model("m").inter_token.count
    engine = RelayingEngine(lambda _: script, TOKENS)
    before = time.perf_counter()
    async with setup.start(engine) as generation:
        await pieces_of(generation)
        assert before < progress.latest() < time.perf_counter()
        assert progress.limit_s == SILENCE_S
        reader = asyncio.create_task(pieces_of(generation, forward=(lambda _: shown.set()) if forwarded else None))
        asyncio.get_running_loop().call_later(GAP_S, gates[0].set)
        await (shown.wait() if forwarded else reader)
        assert engine.relayed == forwarded
        assert progress.latest() >= before + GAP_S
        assert progress.limit_s >= 50 * GAP_S * 0.99
        gates[1].set()
        await reader
    latest = progress.latest()
    assert latest >= before + GAP_S, "what has ended counts, too"
    assert generation not in progress._running


async def test_the_watch_does_not_hear_an_engine_that_a_slow_client_keeps_from_being_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_READY", 1)
    ids = ByteIds(folder).of("ab")
    never = asyncio.Event()
    setup = Setup(folder, lambda _: [EngineChunk(ids[:1]), EngineChunk(ids[1:]), never])
    async with setup.start() as generation:
        assert generation.responded_at() is None, "nothing came yet"
        assert await generation.wait_for_response()
        for _ in range(10):
            await asyncio.sleep(0)
        assert generation.responded_at() is None
        await pieces_of(generation)
        await pieces_of(generation)


@pytest.mark.parametrize(
    ("deadlines", "began", "suspect"),
    [
        (Deadlines(first_token_s=0.05, total_s=60), False, True),
        (Deadlines(first_token_s=60, total_s=0.05), False, True),
        (Deadlines(first_token_s=60, total_s=60, between_tokens_s=0.05), True, True),
        (Deadlines(first_token_s=60, total_s=0.05), True, False),
    ],
)
async def test_requests_that_are_given_up_in_a_row_make_the_engine_suspect(
    folder: Path, deadlines: Deadlines, began: bool, suspect: bool
) -> None:
    never = asyncio.Event()
    script: list[Any] = [EngineChunk(ByteIds(folder).of("a"))] * began + [never]
    setup = Setup(folder, lambda _: script, deadlines)

    async def ask() -> None:
        async with setup.start() as generation:
            with pytest.raises(EngineError):
                await text_of(generation)

    await asyncio.gather(ask(), ask(), ask())
    assert setup.health.belief == ("suspect" if suspect else "well")
