"""Whoever leaves early, the engine's slot is free within two of its steps, by its own count of them, on both paths."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from kserve import metric
from safetensors.numpy import load_file, save_file

from gateway_ops.local_stack.tritonserver import TritonServer
from tests.stack import GatewayProcess
from tests.tiny_model import VOCAB_SIZE, write_tiny_model
from tests.waiting import until_told

# Quicker tests hold that a client that leaves frees the engine: by both transports, and for a hundred clients.
pytestmark = pytest.mark.long
PATHS = pytest.mark.parametrize("path", ["tokens", "ensemble"])
ENDLESS = 900
LEAVE_AT = 5  # tokens
LOGITS = 400_000  # so many to sort: 50 ms and more
LEAD = 1.75  # logits that have tokens are so much larger than they were, the others so much smaller
SLOW_TOP_P = 0.9999999  # sorts all logits, and yet hardly ever takes one that has no token


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose steps take tens of milliseconds: the tiny one's answer is over before anyone can leave.

    A larger lead, or a smaller ``SLOW_TOP_P``, leaves steps whose nucleus is small, which are over in 13 ms.
    """
    folder = tmp_path_factory.mktemp("slow") / "model"
    write_tiny_model(folder, vocab=LOGITS, max_position_embeddings=1024)
    weights = load_file(folder / "model.safetensors")
    weights["lm_head.weight"][:VOCAB_SIZE] *= LEAD
    weights["lm_head.weight"][VOCAB_SIZE:] /= LEAD
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.fixture(scope="module")
def triton(chat_repository: Path, model_dir: Path) -> Iterator[TritonServer]:
    """One slot, so that one step makes one token of one request."""
    limits = {"ENGINE_MAX_BATCH_SIZE": "1", "ENGINE_BLAS_THREADS": "1"}
    with TritonServer(
        chat_repository, model_dir=model_dir, env=limits, log_path=model_dir.parent / "triton.log"
    ) as server:
        server.wait_ready()
        yield server


@pytest.fixture(scope="module")
def gateway(
    triton: TritonServer, model_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    """Serves the model twice, as ``tokens`` and as ``ensemble``."""
    folder = tmp_path_factory.mktemp("leaving")
    models = [
        {"name": path, "path": path, "triton": {"url": triton.grpc_url}, "tokenizer": str(model_dir),
         "max_seq_len": 1024}
        for path in ("tokens", "ensemble")
    ]  # fmt: skip
    with GatewayProcess(folder / "log", {"models": models}) as process:
        yield process


class Engine:
    """The engine's own account of what it does."""

    def __init__(self, triton: TritonServer) -> None:
        self._url = triton.metrics_url
        assert self.requests() == 0
        self._started = self._iterations()

    def requests(self) -> float:
        """Running and waiting."""
        return sum(metric(self._url, "nv_trt_llm_request_metrics", kind) for kind in ("active", "waiting"))

    def steps(self) -> float:
        """Since this object was made."""
        return self._iterations() - self._started

    def _iterations(self) -> float:
        return metric(self._url, "nv_trt_llm_general_metrics", "iteration_counter")


async def within(bound: int, leave: Callable[[Engine], Awaitable[float]], triton: TritonServer) -> None:
    """Leave, and see the slot free within ``bound`` steps of what was seen, in one of three tries.

    Where a machine has much else to do, a token is seen late by whoever wants to leave at it.
    """
    took: list[float] = []
    while len(took) < 3:
        engine = Engine(triton)
        seen = await leave(engine)
        await until_told(lambda: engine.requests() == 0)  # noqa: B023 - called before the next turn
        took.append(engine.steps() - seen)
        if took[-1] <= bound:
            return
    raise AssertionError(f"steps after the leaving: {took}")


def body(path: str, **more: Any) -> dict[str, Any]:
    return {
        "model": path, "messages": [{"role": "user", "content": "go on"}], "max_tokens": ENDLESS, "ignore_eos": True,
        "temperature": 1, "top_p": SLOW_TOP_P, "seed": 1, **more,
    }  # fmt: skip


@PATHS
async def test_a_client_that_leaves_its_stream(triton: TritonServer, gateway: GatewayProcess, path: str) -> None:
    asked = body(path, stream=True, stream_options={"include_usage": True, "continuous_usage_stats": True})

    async def leave(engine: Engine) -> float:
        seen = 0
        async with (
            httpx.AsyncClient(timeout=30) as client,
            client.stream("POST", f"{gateway.url}/v1/chat/completions", json=asked) as answer,
        ):
            async for line in answer.aiter_lines():
                if line.startswith("data: {"):
                    seen = json.loads(line[6:])["usage"]["completion_tokens"]
                if seen >= LEAVE_AT:
                    break
        return seen

    await within(2, leave, triton)


@PATHS
async def test_a_client_that_waits_no_longer_for_a_whole_answer(
    triton: TritonServer, gateway: GatewayProcess, path: str
) -> None:
    async def leave(engine: Engine) -> float:
        async with httpx.AsyncClient(timeout=30) as client:
            waiting = asyncio.create_task(client.post(f"{gateway.url}/v1/chat/completions", json=body(path)))
            await until_told(lambda: engine.steps() >= LEAVE_AT)
            seen = engine.steps()
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        return seen

    await within(3, leave, triton)  # one may have begun between the look at the counter and the leaving
