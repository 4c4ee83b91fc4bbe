"""Both transports and both dialects on the real Triton."""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import httpx
import pytest
from tokenizers import Tokenizer

from gateway.generation import SamplingParams
from gateway.generation.engine import Engine, EngineError, ErrorKind
from gateway.generation.request import GenerationRequest
from gateway.text.prompt.prompt import Prompt
from gateway.triton import TritonBackend
from gateway.triton.transports import TransportName
from gateway_ops.local_stack.tritonserver import TritonServer
from tests.engine_requests import generation_request


@pytest.fixture(scope="module")
def tokenizer(tiny_model_dir: Path) -> Tokenizer:
    return Tokenizer.from_file(str(tiny_model_dir / "tokenizer.json"))


@pytest.fixture(params=["tokens", "ensemble"])
async def engine(
    request: pytest.FixtureRequest, triton: TritonServer, transport_name: TransportName
) -> AsyncIterator[Engine]:
    async with TritonBackend(triton.grpc_url, "ensemble", request.param, transport=transport_name) as backend:
        await backend.wait_ready(30)
        yield backend.engine


def ask(tokenizer: Tokenizer, text: str, max_tokens: int) -> GenerationRequest:
    prompt = Prompt(text=text, ids=tuple(tokenizer.encode(text, add_special_tokens=False).ids))
    return generation_request(uuid.uuid4().hex, prompt, max_tokens, params=SamplingParams(temperature=0.0))


async def generate(engine: Engine, request: GenerationRequest) -> list[int]:
    return [token for chunk in [chunk async for chunk in engine.generate(request)] for token in chunk.ids]


answers: dict[str, list[list[int]]] = {}


async def test_every_way_gives_the_same_tokens(engine: Engine, tokenizer: Tokenizer) -> None:
    texts = [f"In the beginning {number}" for number in range(16)]
    lists = await asyncio.gather(*(generate(engine, ask(tokenizer, text, 24)) for text in texts))
    assert [len(ids) for ids in lists] == [24] * 16
    assert answers.setdefault("first", list(lists)) == lists


async def test_leaving_frees_the_engine(engine: Engine, tokenizer: Tokenizer, triton: TritonServer) -> None:
    async with httpx.AsyncClient(base_url=triton.metrics_url) as metrics:
        async with aclosing(engine.generate(ask(tokenizer, "go on", 1_500))) as chunks:
            while await active(metrics) != 1:  # the gauge follows in steps
                await anext(chunks)
        for _ in range(500):
            if not await active(metrics):
                return
            await asyncio.sleep(0.02)
    raise AssertionError("the request went on")


async def active(metrics: httpx.AsyncClient) -> int:
    text = (await metrics.get("")).text
    found = re.search(r'^nv_trt_llm_request_metrics{[^}]*"active"[^}]*} (\d+)', text, re.MULTILINE)
    assert found
    return int(found[1])


async def test_a_prompt_beyond_the_context_is_refused(engine: Engine, tokenizer: Tokenizer) -> None:
    with pytest.raises(EngineError) as error:
        await generate(engine, ask(tokenizer, "word " * 40_000, 1))
    assert error.value.kind is ErrorKind.CONTEXT_LENGTH
    assert len(await generate(engine, ask(tokenizer, "and on", 3))) == 3
