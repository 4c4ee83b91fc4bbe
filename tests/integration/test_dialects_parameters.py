"""Each parameter on the real Triton by both dialects: what it does to the answer, or why it is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from bench import Bench, collect, failure, prompt_ids

from gateway.generation import SamplingParams, SequenceAssembler
from gateway.generation.engine import EngineChunk, ErrorKind
from gateway.generation.request import GenerationRequest
from gateway.text.contract import ENSEMBLE, TENSORRT_LLM, ModelSpec
from gateway.text.prompt.prompt import Prompt
from gateway.text.tokens import Tokenizer, word_sequences
from gateway.triton import EngineOptions
from gateway.triton.model_view import ModelView
from gateway.triton.pipeline import Models
from gateway_ops.local_stack.tritonserver import TritonServer

PATHS = pytest.mark.parametrize("path", ["tokens", "ensemble"])


@pytest.fixture
async def bench(triton: TritonServer, tiny_model_dir: Path) -> AsyncIterator[Bench]:
    async with Bench(triton.grpc_url, prompt_ids(tiny_model_dir)) as running:
        yield running


@pytest.fixture(scope="module")
def tokenizer(tiny_model_dir: Path) -> Tokenizer:
    return Tokenizer.from_folder(tiny_model_dir)


def ids_of(chunks: list[EngineChunk]) -> list[int]:
    return [token for chunk in chunks for token in chunk.ids]


async def ids(bench: Bench, path: str, request: GenerationRequest) -> list[int]:
    return ids_of(await collect(bench.engine(path), request))


async def test_a_logit_bias_decides_never_and_always(bench: Bench, tokenizer: Tokenizer) -> None:
    size = tokenizer.logits_size
    plain = await ids(bench, "tokens", bench.ask(12))
    favourite = max(set(plain), key=plain.count)
    banned = await ids(bench, "tokens", bench.ask(12, logit_bias={favourite: -100.0}, vocab_size=size))
    assert favourite not in banned
    assert len(banned) == 12
    other = next(token for token in range(260) if token not in plain)
    assert await ids(bench, "tokens", bench.ask(12, logit_bias={other: 100.0}, vocab_size=size)) == [other] * 12
    error = await failure(bench.engine("tokens"), bench.ask(logit_bias={10**6: 1.0}, vocab_size=size))
    assert error.kind is ErrorKind.INVALID_REQUEST
    assert "1000000" in error.message
    error = await failure(bench.engine("ensemble"), bench.ask(logit_bias={5: 1.0}, vocab_size=size))
    assert error.kind is ErrorKind.INVALID_REQUEST


@PATHS
async def test_bad_words_do_not_come(bench: Bench, path: str, tokenizer: Tokenizer) -> None:
    plain = await ids(bench, path, bench.ask(24))
    banned = next(token for token in plain if (token,) in word_sequences(tokenizer, tokenizer.token_text(token)))
    word = tokenizer.token_text(banned)
    answer = await ids(bench, path, bench.ask(24, bad_word_ids=word_sequences(tokenizer, word), bad_words=(word,)))
    assert banned not in answer
    assert len(answer) == 24


@PATHS
async def test_a_stop_id_ends_the_answer_and_counts(bench: Bench, path: str, tokenizer: Tokenizer) -> None:
    plain = await ids(bench, path, bench.ask(24))
    stop = plain[9]
    expected = plain[: plain.index(stop) + 1]
    request = bench.ask(24, stop_token_ids=(stop,), return_token_ids=True)
    assembler = SequenceAssembler(request, tokenizer)
    async for chunk in bench.engine(path).generate(request):
        assembler.feed(chunk)
        if assembler.stopped:
            break
    assembler.finish()
    assert assembler.token_ids == expected
    assert (assembler.finish_reason, assembler.stop_reason) == ("stop", stop)
    assert assembler.usage.completion_tokens == len(expected)


@PATHS
async def test_min_tokens_hold_back_the_end(bench: Bench, path: str) -> None:
    plain = await ids(bench, path, bench.ask(12))
    end = plain[2]
    ends = {"end_ids": (end,), "end_texts": ("",)}
    assert len(await ids(bench, path, bench.ask(12, **ends))) <= 2
    held = await ids(bench, path, bench.ask(12, min_tokens=8, **ends))
    assert len(held) >= 8
    assert end not in held[:8]


@PATHS
@pytest.mark.parametrize(
    "sampling",
    [
        pytest.param(SamplingParams(temperature=0.0, repetition_penalty=5.0), id="repetition penalty"),
        pytest.param(SamplingParams(temperature=0.0, frequency_penalty=2.0), id="frequency penalty"),
        pytest.param(SamplingParams(temperature=0.0, presence_penalty=2.0), id="presence penalty"),
    ],
)
async def test_penalties_change_the_answer(bench: Bench, path: str, sampling: SamplingParams) -> None:
    plain = await ids(bench, path, bench.ask(32))
    assert await ids(bench, path, bench.ask(32, params=sampling)) != plain


@PATHS
async def test_min_p_leaves_the_best_only(bench: Bench, path: str) -> None:
    """With the share 1 only the most probable candidate is left, however hot the sampling."""
    hot = SamplingParams(temperature=1.5, seed=7)
    assert await ids(bench, path, bench.ask(12, params=hot)) != await ids(bench, path, bench.ask(12))
    only = SamplingParams(temperature=1.5, seed=7, min_p=1.0)
    assert await ids(bench, path, bench.ask(12, params=only)) == await ids(bench, path, bench.ask(12))


@PATHS
async def test_prompt_log_probs_are_those_of_generating_the_same_tokens(bench: Bench, path: str) -> None:
    asked = bench.ask(8, logprobs=True)
    generated = await collect(bench.engine("tokens"), asked)
    told = [value for chunk in generated for value in chunk.logprobs or ()]
    answer = ids_of(generated)
    if path == "ensemble":  # its own tokenizer may write the same text in other tokens
        echo = bench.ask(1, prompt_logprobs=2)
        count = 0
    else:
        prompt = Prompt(text="", ids=(*asked.prompt.ids, *answer))
        echo = bench.ask(1, prompt=prompt, prompt_logprobs=2)
        count = len(answer)
    chunks = await collect(bench.engine(path), echo)
    values, top = chunks[0].prompt_logprobs, chunks[0].prompt_top_logprobs
    assert values is not None
    assert top is not None
    assert len(values) == len(top) == len(echo.prompt.ids) - 1
    assert list(values[len(values) - count :]) == pytest.approx(told[:count], abs=1e-4)
    for token, value, best in zip(echo.prompt.ids[1:], values, top, strict=True):
        assert len(best) == 2
        assert best[0][1] >= best[1][1]
        assert value <= best[0][1] + 1e-6
        assert all(index != token or shown == pytest.approx(value, abs=1e-6) for index, shown in best)
    assert all(chunk.prompt_logprobs is None for chunk in chunks[1:])


@PATHS
async def test_a_prompt_of_one_token_has_no_log_probs_of_its_own(bench: Bench, path: str, tokenizer: Tokenizer) -> None:
    text = "a"
    prompt = Prompt(text=text, ids=tuple(tokenizer.encode(text)))
    assert len(prompt.ids) == 1
    chunks = await collect(bench.engine(path), bench.ask(1, prompt=prompt, prompt_logprobs=0))
    assert not chunks[0].prompt_logprobs


@PATHS
async def test_cached_tokens_of_a_repeated_prompt(bench: Bench, path: str, tokenizer: Tokenizer) -> None:
    text = f"{path} is asked twice, and " + "so is this one too, " * 20
    ids = tuple(tokenizer.encode(text))
    requests = [bench.ask(2, prompt=Prompt(text, ids), cached_tokens=True) for _ in range(2)]
    first, again = [(await collect(bench.engine(path), request))[-1].cached_tokens for request in requests]
    assert first is not None
    assert again is not None
    assert 0 <= first < again < len(ids)
    assert (await collect(bench.engine(path), bench.ask(2)))[-1].cached_tokens is None


@pytest.fixture(scope="module")
def gathering(
    repository: Path, tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TritonServer]:
    """An engine that answers with logits."""
    log = tmp_path_factory.mktemp("gathering") / "triton.log"
    env = {"ENGINE_GATHER_LOGITS": "true"}
    server = TritonServer(repository, model_dir=tiny_model_dir, env=env, log_path=log)
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
