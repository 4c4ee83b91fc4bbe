"""Both dialects on the real Triton: which is taken, and that they give the same tokens."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import pytest
from kserve import metric, steps
from tokenizers import Tokenizer

from gateway.generation import SamplingParams
from gateway.generation.engine import Engine, EngineChunk
from gateway.generation.request import GenerationRequest
from gateway.text.prompt.prompt import Prompt
from gateway.triton import TritonBackend
from gateway_ops.local_stack.tritonserver import TritonServer
from tests.engine_requests import generation_request
from tests.waiting import until_told


@pytest.fixture(scope="module")
def ask(tokenizer: Tokenizer) -> Callable[..., GenerationRequest]:
    """Makes greedy requests without an end token; ``text`` is the prompt."""

    def make(max_tokens: int = 16, text: str = "In the beginning", **changes: Any) -> GenerationRequest:
        prompt = Prompt(text=text, ids=tuple(tokenizer.encode(text, add_special_tokens=False).ids))
        base: dict[str, Any] = {"params": SamplingParams(temperature=0.0)}
        return generation_request(uuid.uuid4().hex, prompt, max_tokens, **{**base, **changes})

    return make


async def collect(engine: Engine, request: GenerationRequest) -> list[EngineChunk]:
    return [chunk async for chunk in engine.generate(request)]


def ids_of(chunks: list[EngineChunk]) -> list[int]:
    return [token for chunk in chunks for token in chunk.ids]


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
        before = steps(triton)
        async with aclosing(bls.engine.generate(ask(1500))) as left:
            await anext(left)
        await until_told(lambda: not metric(triton.metrics_url, "nv_trt_llm_request_metrics", "active"))
        assert steps(triton) - before < 1200
