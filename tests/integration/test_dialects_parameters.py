"""Log-probs that the gateway makes of logits, on the real Triton by both dialects."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from bench import Bench, collect, failure, prompt_ids

from gateway.generation.engine import EngineChunk, ErrorKind
from gateway.text.contract import ENSEMBLE, TENSORRT_LLM, ModelSpec
from gateway.text.prompt.prompt import Prompt
from gateway.triton import EngineOptions
from gateway.triton.model_view import ModelView
from gateway.triton.pipeline import Models
from gateway_ops.local_stack.tritonserver import TritonServer

PATHS = pytest.mark.parametrize("path", ["tokens", "ensemble"])


@pytest.fixture
async def bench(triton: TritonServer, tiny_model_dir: Path) -> AsyncIterator[Bench]:
    async with Bench(triton.grpc_url, prompt_ids(tiny_model_dir)) as running:
        yield running


def ids_of(chunks: list[EngineChunk]) -> list[int]:
    return [token for chunk in chunks for token in chunk.ids]


@pytest.fixture(scope="module")
def gathering(
    chat_repository: Path, tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TritonServer]:
    """An engine that answers with logits."""
    log = tmp_path_factory.mktemp("gathering") / "triton.log"
    env = {"ENGINE_GATHER_LOGITS": "true"}
    server = TritonServer(chat_repository, model_dir=tiny_model_dir, env=env, log_path=log)
    server.start()
    try:
        server.wait_ready()
        yield server
    finally:
        server.kill()  # quicker than a shutdown, and nothing is left to be kept


def as_upstream(models: Models) -> Models:
    """The models without the tensors that only this project's engines have."""

    def stock(view: ModelView, spec: ModelSpec) -> ModelView:
        own = {tensor.name for tensor in (*spec.inputs, *spec.outputs) if tensor.extension}
        own -= {"output_ids", "sequence_length"}
        return replace(view, inputs=view.inputs - own, outputs=view.outputs - own)

    assert models.engine is not None
    return replace(models, entry=stock(models.entry, ENSEMBLE), engine=stock(models.engine, TENSORRT_LLM))


def normalizing(models: Models) -> Models:
    """The models as if the engine's own log-probs were relative to what sampling leaves: 0 for each greedy token."""
    assert models.engine is not None
    parameters = {**models.engine.parameters, "normalize_log_probs": "true"}
    return replace(models, engine=replace(models.engine, parameters=parameters))


@PATHS
async def test_log_probs_from_logits_where_the_engine_has_no_others(
    gathering: TritonServer, bench: Bench, tiny_model_dir: Path, path: str
) -> None:
    """Greedy without penalties the engine's own log-probs are of the same distribution."""
    expected = await collect(bench.engine(path), bench.ask(6, logprobs=True, top_logprobs=3, prompt_logprobs=2))
    options = EngineOptions(generation_logits=True, context_logits_tokens=64)
    async with Bench(gathering.grpc_url, prompt_ids(tiny_model_dir), options) as other:
        other.models = as_upstream(other.models)
        asked = other.ask(6, logprobs=True, top_logprobs=3, prompt_logprobs=2)
        found = await collect(other.engine(path), asked)
        other.models = normalizing(other.models)
        alone = await collect(other.engine(path), other.ask(6, logprobs=True))
        long = other.ask(1, prompt=Prompt("a " * 65, tuple(range(5, 70))), prompt_logprobs=0)
        error = await failure(other.engine(path), long)
        assert error.kind is ErrorKind.INVALID_REQUEST
        assert "64" in error.message
    assert ids_of(found) == ids_of(expected)
    for chunk, native in zip(alone, expected, strict=False):
        assert chunk.logprobs == pytest.approx(native.logprobs, abs=1e-4)
    for mine, theirs in zip(found, expected, strict=False):
        assert mine.logprobs == pytest.approx(theirs.logprobs, abs=1e-4)
        for best, others in zip(mine.top_logprobs or (), theirs.top_logprobs or (), strict=True):
            assert [index for index, _ in best] == [index for index, _ in others]
            assert [value for _, value in best] == pytest.approx([value for _, value in others], abs=1e-4)
    assert found[0].prompt_logprobs == pytest.approx(expected[0].prompt_logprobs, abs=1e-4)
    assert found[0].prompt_top_logprobs is not None
    assert [len(best) for best in found[0].prompt_top_logprobs] == [2] * (len(asked.prompt.ids) - 1)


@PATHS
async def test_an_engine_that_keeps_no_logits_is_told_so(bench: Bench, path: str) -> None:
    bench.options = EngineOptions(generation_logits=True)
    bench.models = as_upstream(bench.models)
    error = await failure(bench.engine(path), bench.ask(2, logprobs=True, top_logprobs=1))
    assert error.kind is ErrorKind.INVALID_REQUEST
    assert "logits" in error.message
