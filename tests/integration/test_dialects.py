"""Both dialects on the real Triton: the same tokens, cancellation that frees the slot, failures of the right kind."""

from __future__ import annotations

import asyncio
import shutil
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format
from kserve import metric
from tokenizers import Tokenizer
from tritonclient.grpc.model_config_pb2 import ModelConfig

from gateway.generation import SamplingParams
from gateway.generation.engine import Engine, EngineChunk, EngineError, ErrorKind
from gateway.generation.request import GenerationRequest
from gateway.text.prompt.prompt import Prompt
from gateway.triton import TritonBackend
from gateway_ops.local_stack.tritonserver import MODELS, TritonServer
from tests.engine_requests import generation_request

PATHS = pytest.mark.parametrize("path", ["tokens", "ensemble"])


@pytest.fixture(scope="module")
def tokenizer(tiny_model_dir: Path) -> Tokenizer:
    return Tokenizer.from_file(str(tiny_model_dir / "tokenizer.json"))


@pytest.fixture(scope="module")
def ask(tokenizer: Tokenizer) -> Callable[..., GenerationRequest]:
    """Makes greedy requests without an end token; ``text`` is the prompt."""

    def make(max_tokens: int = 16, text: str = "In the beginning", **changes: Any) -> GenerationRequest:
        prompt = Prompt(text=text, ids=tuple(tokenizer.encode(text, add_special_tokens=False).ids))
        base: dict[str, Any] = {"params": SamplingParams(temperature=0.0)}
        return generation_request(uuid.uuid4().hex, prompt, max_tokens, **{**base, **changes})

    return make


@pytest.fixture
async def backend(triton: TritonServer, path: Any) -> AsyncIterator[TritonBackend]:
    async with TritonBackend(triton.grpc_url, "ensemble", path) as running:
        await running.wait_ready(30)
        yield running


@pytest.fixture(scope="module")
def mortal_triton(
    repository: Path, tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TritonServer]:
    """A server that may be killed; it has an ensemble that answers text only, as stock ones do."""
    folder = tmp_path_factory.mktemp("mortal")
    shutil.copytree(repository, folder / "repository")
    shutil.copytree(repository / "ensemble", folder / "repository" / "text_only")
    config = text_format.Parse((repository / "ensemble" / "config.pbtxt").read_text(), ModelConfig())
    config.name = "text_only"
    shown = [output for output in config.output if output.name not in ("output_ids", "sequence_length")]
    del config.output[:]
    config.output.extend(shown)
    (folder / "repository" / "text_only" / "config.pbtxt").write_text(text_format.MessageToString(config))
    with TritonServer(folder / "repository", model_dir=tiny_model_dir, log_path=folder / "triton.log") as server:
        server.wait_ready([*MODELS, "text_only"])
        yield server


async def collect(engine: Engine, request: GenerationRequest) -> list[EngineChunk]:
    return [chunk async for chunk in engine.generate(request)]


async def exhaust(chunks: AsyncIterator[EngineChunk]) -> None:
    async for _ in chunks:
        pass


def ids_of(chunks: list[EngineChunk]) -> list[int]:
    return [token for chunk in chunks for token in chunk.ids]


async def test_auto_takes_the_engine_step(triton: TritonServer) -> None:
    async with TritonBackend(triton.grpc_url, "ensemble") as backend:
        await backend.wait_ready(30)
        features = backend.engine.features
    assert (features.path, features.model, features.token_ids, features.prompt_ids) == (
        "tokens",
        "tensorrt_llm",
        True,
        True,
    )
    assert "stock" in features.reason
    assert features.logprobs
    assert features.max_top_logprobs == 20


async def test_an_engine_model_can_be_configured_directly(triton: TritonServer, ask: Any) -> None:
    async with TritonBackend(triton.grpc_url, "tensorrt_llm") as backend:
        await backend.wait_ready(30)
        assert backend.engine.features.path == "tokens"
        assert len(ids_of(await collect(backend.engine, ask(4)))) == 4


async def test_both_paths_give_the_same_tokens_and_log_probs(triton: TritonServer, ask: Any) -> None:
    answers = []
    for path in ("tokens", "ensemble"):
        async with TritonBackend(triton.grpc_url, "ensemble", path) as backend:  # type: ignore[arg-type]
            await backend.wait_ready(30)
            assert backend.engine.features.path == path
            answers.append(await collect(backend.engine, ask(24, logprobs=True, top_logprobs=3)))
    direct, ensemble = answers
    assert len(ids_of(direct)) == 24
    assert ids_of(direct) == ids_of(ensemble)
    for mine, theirs in zip(direct, ensemble, strict=True):
        assert mine.logprobs == pytest.approx(theirs.logprobs, abs=1e-5)
        assert [[token for token, _ in best] for best in mine.top_logprobs or ()] == [
            [token for token, _ in best] for best in theirs.top_logprobs or ()
        ]
    assert direct[-1].finish_reason == ensemble[-1].finish_reason == "length"
    assert ensemble[0].prompt_tokens == len(ask().prompt.ids)


@PATHS
async def test_log_probs_belong_to_their_tokens(backend: TritonBackend, ask: Any) -> None:
    for chunk in await collect(backend.engine, ask(12, logprobs=True, top_logprobs=4)):
        assert chunk.logprobs is not None
        assert chunk.top_logprobs is not None
        for token, logprob, best in zip(chunk.ids, chunk.logprobs, chunk.top_logprobs, strict=True):
            assert len(best) == 4
            assert best[0] == (token, pytest.approx(logprob, abs=1e-5))
            assert [value for _, value in best] == sorted((value for _, value in best), reverse=True)


@PATHS
async def test_end_ids_end_the_answer(backend: TritonBackend, ask: Any, tokenizer: Tokenizer) -> None:
    plain = ids_of(await collect(backend.engine, ask(24)))
    end = next(token for token in plain[1:] if plain.index(token) > 0)
    before = plain[: plain.index(end)]
    as_end_id = await collect(backend.engine, ask(24, end_ids=(end,), end_texts=(tokenizer.id_to_token(end),)))
    assert ids_of(as_end_id) == before
    assert as_end_id[-1].final
    assert as_end_id[-1].finish_reason == "stop"


@PATHS
async def test_the_seed_decides_a_sampled_answer(backend: TritonBackend, ask: Any) -> None:
    async def sample(seed: int) -> list[int]:
        return ids_of(await collect(backend.engine, ask(16, params=SamplingParams(temperature=1.0, seed=seed))))

    one, again, other = [await sample(seed) for seed in (2**63 + 1, 2**63 + 1, 2)]
    assert one == again
    assert one != other


@PATHS
async def test_an_over_long_prompt(backend: TritonBackend, ask: Any) -> None:
    with pytest.raises(EngineError) as error:
        await collect(backend.engine, ask(4, text="word " * 3000))
    assert error.value.kind is ErrorKind.CONTEXT_LENGTH
    assert "2048" in error.value.message or "2047" in error.value.message


@PATHS
async def test_many_requests_at_once(backend: TritonBackend, ask: Any) -> None:
    answers = await asyncio.gather(*(collect(backend.engine, ask(12)) for _ in range(12)))
    assert [len(ids_of(answer)) for answer in answers] == [12] * 12


async def test_an_ensemble_that_answers_text_only(mortal_triton: TritonServer, ask: Any, tokenizer: Tokenizer) -> None:
    async with (
        TritonBackend(mortal_triton.grpc_url, "text_only", "ensemble") as text_only,
        TritonBackend(mortal_triton.grpc_url, "ensemble", "ensemble") as with_tokens,
    ):
        await text_only.wait_ready(30)
        await with_tokens.wait_ready(30)
        assert not text_only.engine.features.token_ids
        assert not text_only.engine.features.logprobs
        chunks = await collect(text_only.engine, ask(12))
        ids = ids_of(await collect(with_tokens.engine, ask(12)))
    assert "".join(chunk.text or "" for chunk in chunks) == tokenizer.decode(ids, skip_special_tokens=True)
    assert all(not chunk.ids for chunk in chunks)
    assert chunks[-1].final
    assert chunks[-1].finish_reason == "length"
    assert sum(chunk.output_tokens or 0 for chunk in chunks) == len(ids) == 12
    assert chunks[0].prompt_tokens == len(ask().prompt.ids)


async def test_an_unknown_model(triton: TritonServer) -> None:
    async with TritonBackend(triton.grpc_url, "no_such_model") as backend:
        with pytest.raises(EngineError) as error:
            await backend.wait_ready(0.5)
        assert error.value.kind is ErrorKind.UNSERVABLE
        assert "no_such_model" in backend.status.reason
        assert "'tensorrt_llm_bls'" in backend.status.reason


async def test_a_bls_model_answers_as_the_ensemble_does(triton: TritonServer, ask: Any) -> None:
    async with (
        TritonBackend(triton.grpc_url, "tensorrt_llm_bls") as bls,
        TritonBackend(triton.grpc_url, "ensemble", "ensemble") as ensemble,
    ):
        for backend in (bls, ensemble):
            await backend.wait_ready(30)
        chunks = await collect(bls.engine, ask(12))
        assert ids_of(chunks) == ids_of(await collect(ensemble.engine, ask(12)))
        assert chunks[-1].finish_reason == "length"
        before = metric(triton.metrics_url, "nv_trt_llm_general_metrics", "iteration_counter")
        async with aclosing(bls.engine.generate(ask(1500))) as left:
            await anext(left)
        await until(lambda: not metric(triton.metrics_url, "nv_trt_llm_request_metrics", "active"))
        assert metric(triton.metrics_url, "nv_trt_llm_general_metrics", "iteration_counter") - before < 1200


async def test_a_triton_that_dies_and_comes_back(mortal_triton: TritonServer, ask: Any) -> None:
    server = mortal_triton
    async with (
        TritonBackend(server.grpc_url, "ensemble", "tokens") as one,
        TritonBackend(server.grpc_url, "ensemble", "ensemble") as other,
    ):
        backends = (one, other)
        for backend in backends:
            await backend.wait_ready(30)
        engines = [backend.engine for backend in backends]
        streams = [engine.generate(ask(2000)) for engine in engines]
        for stream in streams:
            await anext(stream)
        await asyncio.to_thread(server.kill)
        for stream in streams:
            with pytest.raises(EngineError) as error:
                await exhaust(stream)
            assert error.value.kind is ErrorKind.UNAVAILABLE
        await until(lambda: not any(backend.status.ready for backend in backends))
        for backend, engine in zip(backends, engines, strict=True):
            with pytest.raises(EngineError) as error:
                _ = backend.engine
            assert error.value.kind is ErrorKind.UNAVAILABLE
            # Who still holds the engine from before is not left waiting either.
            with pytest.raises(EngineError) as error:
                await collect(engine, ask())
            assert error.value.kind is ErrorKind.UNAVAILABLE
        await asyncio.to_thread(server.start)
        for backend in backends:
            await backend.wait_ready(60)
            assert len(ids_of(await collect(backend.engine, ask(5)))) == 5


async def until(holds: Callable[[], bool], seconds: float = 20) -> None:
    """Wait until something holds; it is asked in a thread, so that it may wait for a server."""
    deadline = time.monotonic() + seconds
    while not await asyncio.to_thread(holds):
        assert time.monotonic() < deadline, "it took too long"
        await asyncio.sleep(0.01)
