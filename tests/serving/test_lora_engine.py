"""An adapter's weights travel once, and again when the engine has lost them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable

import pytest

from gateway.generation import EngineChunk, EngineError, EngineFeatures, ErrorKind, GenerationRequest
from gateway.generation.engine import AdapterNotCachedError, AdapterRejectedError
from gateway.generation.relay.interface import Began, Take, can_relay
from gateway.generation.request import LoraAdapter, Matrix
from gateway.serving.lora_engine import LoraEngine, LoraState
from gateway.text.prompt.prompt import Prompt
from tests.engine_requests import generation_request

ADAPTER = LoraAdapter(3, Matrix(b"ab", 1, 1), Matrix(bytes(12), 1, 3))
REQUEST = generation_request("r", Prompt("a", (1,)), 5)


class Holding:
    """An engine that holds adapters until it is told to lose them; it answers two chunks."""

    def __init__(self) -> None:
        self.held: set[int] = set()
        self.seen: list[GenerationRequest] = []
        self.failure: EngineError | None = None
        self.closed = 0

    @property
    def features(self) -> EngineFeatures:
        return EngineFeatures("tokens", "", "m", token_ids=True, prompt_ids=True, logprobs=False)

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[EngineChunk, None]:
        self.seen.append(request)
        assert request.lora is not None
        if request.lora.weights is not None:
            self.held.add(request.lora.task_id)
        elif request.lora.task_id not in self.held:
            raise AdapterNotCachedError(ErrorKind.INVALID_REQUEST, "gone")
        try:
            yield EngineChunk(ids=(1,))
            if self.failure is not None:
                raise self.failure
            yield EngineChunk(ids=(2,), final=True)
        finally:
            self.closed += 1


async def ids(engine: LoraEngine) -> list[int]:
    return [token async for chunk in engine.generate(REQUEST) for token in chunk.ids]


async def test_weights_go_first_and_again_after_a_loss() -> None:
    inner = Holding()
    engine = LoraEngine(inner, LoraState(ADAPTER, "french"))
    for lost in (False, False, True, False):
        if lost:
            inner.held.clear()
        assert await ids(engine) == [1, 2]
    sent = [request.lora.weights is not None for request in inner.seen if request.lora]
    assert sent == [True, False, False, True, False]
    assert len({request.id for request in inner.seen[2:4]}) == 2


async def test_one_state_serves_all_requests() -> None:
    inner, state = Holding(), LoraState(ADAPTER, "french")
    await ids(LoraEngine(inner, state))
    await ids(LoraEngine(inner, state))
    assert [request.lora == ADAPTER.by_id() for request in inner.seen] == [False, True]


async def test_an_adapter_that_only_the_engine_has_is_an_error_when_it_has_not() -> None:
    inner = Holding()
    with pytest.raises(AdapterRejectedError, match=r"does not have the LoRA adapter of model 'french' \(task 3\)"):
        await ids(LoraEngine(inner, LoraState(LoraAdapter(3), "french")))
    assert len(inner.seen) == 1


async def test_other_errors_are_passed_on_and_not_tried_again() -> None:
    inner = Holding()
    inner.failure = EngineError(ErrorKind.INTERNAL, "broken")
    with pytest.raises(EngineError, match="broken"):
        await ids(LoraEngine(inner, LoraState(ADAPTER, "french")))
    assert len(inner.seen) == 1


@pytest.mark.parametrize("held", [False, True])
async def test_an_adapter_that_the_engine_cannot_use_is_named(held: bool) -> None:
    inner = Holding()
    state = LoraState(ADAPTER, "french")
    state.held = held  # lost since: its weights go once more, and are refused then
    inner.failure = AdapterRejectedError(ErrorKind.INTERNAL, "not this one", "lora_weights has to few values")
    with pytest.raises(AdapterRejectedError) as error:
        await ids(LoraEngine(inner, state))
    assert error.value.message == "This deployment's engine cannot use the LoRA adapter of model 'french' (task 3)."
    assert error.value.detail == "lora_weights has to few values"


async def test_leaving_early_closes_the_engine_s_generation() -> None:
    inner = Holding()
    chunks = LoraEngine(inner, LoraState(ADAPTER, "french")).generate(REQUEST)
    await chunks.__anext__()
    await chunks.aclose()
    assert inner.closed == 1


class Pushes(Holding):
    """Hands over a token between its two chunks, and can be cancelled."""

    def cancel(self) -> None:
        self.failure = EngineError(ErrorKind.CANCELLED, "cancelled")

    async def generate_relayed(
        self, request: GenerationRequest, take: Take, began: Began
    ) -> AsyncGenerator[EngineChunk, None]:
        began(self.cancel)
        async for chunk in self.generate(request):
            yield chunk
            if not chunk.final:
                take([9])


@pytest.mark.parametrize("lost", [False, True])
async def test_tokens_are_pushed_and_a_request_is_cancelled_with_an_adapter_too(lost: bool) -> None:
    inner, state = Pushes(), LoraState(ADAPTER, "french")
    state.held = lost
    engine = LoraEngine(inner, state)
    pushed: list[int] = []
    cancels: list[Callable[[], None]] = []

    def take(tokens: list[int]) -> int:
        pushed.extend(tokens)
        return len(tokens)

    chunks = engine.generate_relayed(REQUEST, take, cancels.append)
    assert [chunk.ids async for chunk in chunks] == [(1,), (2,)]
    assert (pushed, len(cancels)) == ([9], 1 + lost)
    chunks = engine.generate_relayed(REQUEST, take, cancels.append)
    await chunks.__anext__()
    cancels[-1]()
    with pytest.raises(EngineError, match="cancelled"):
        await chunks.__anext__()


async def test_an_engine_that_pushes_nothing_generates_as_ever() -> None:
    def never(*_: object) -> int:
        raise AssertionError

    engine = LoraEngine(Holding(), LoraState(ADAPTER, "french"))
    assert can_relay(engine)
    chunks = engine.generate_relayed(REQUEST, never, never)
    assert [chunk.ids async for chunk in chunks] == [(1,), (2,)]
