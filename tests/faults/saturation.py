"""The saturated engine: more clients than it has places for, some of which leave, before the real Triton."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections import Counter
from pathlib import Path

import httpx

from gateway_ops.local_stack.tritonserver import TritonServer
from tests.stack import GatewayProcess
from tests.tiny_model import write_tiny_model

_REPOSITORY = Path(__file__).parents[2] / "triton_repo"
_MODEL = "tiny"
_CLIENTS = 24
_PLACES = {"ENGINE_MAX_BATCH_SIZE": "2", "ENGINE_MAX_QUEUE_SIZE": "4"}
_REST_S = 0.1  # between requests of a client: Triton 2.51 can die where hundreds of clients leave within a second


async def _ask(http: httpx.AsyncClient, *, leave: bool) -> str:
    """Ask for a long answer; returns its status, or what else became of it."""
    body = {"model": _MODEL, "prompt": "go on", "max_tokens": 200, "temperature": 0, "stream": True}
    async with http.stream("POST", "/v1/completions", json=body) as answer:
        async for line in answer.aiter_lines():
            if leave and line.startswith("data: {"):
                return "left"
            if line.startswith("data: {") and '"error"' in line:
                return line
        return str(answer.status_code)


async def _watch(http: httpx.AsyncClient) -> Counter[str]:
    """Look at the health of the engine until cancelled; how often it was well, or what else was said."""
    said: Counter[str] = Counter()
    try:
        while True:
            ready = await http.get("/health/ready")
            alive = await http.get("/health/live", params={"engine": 1})
            state = ready.json()["models"][_MODEL]["state"] if ready.is_success else ready.text
            said["well" if state == "ready" and alive.is_success else f"{state}, {alive.text}"] += 1
            await asyncio.sleep(0.2)
    except asyncio.CancelledError:
        return said


async def _load(url: str, seconds: float) -> tuple[Counter[str], Counter[str]]:
    ends, outcomes = time.monotonic() + seconds, Counter[str]()

    async def client(http: httpx.AsyncClient, number: int) -> None:
        while time.monotonic() < ends:
            number += 1
            outcomes[await _ask(http, leave=not number % 3)] += 1
            await asyncio.sleep(_REST_S)

    async with httpx.AsyncClient(base_url=url, timeout=60, limits=httpx.Limits(max_connections=None)) as http:
        watching = asyncio.ensure_future(_watch(http))
        await asyncio.gather(*(client(http, number) for number in range(_CLIENTS)))
        watching.cancel()
        return outcomes, await watching


def saturate(seconds: float) -> tuple[Counter[str], Counter[str]]:
    """Saturate an engine of two slots and four places for so long, where a silence of 3 s is looked into.

    Returns:
        What became of the requests by status, ``left`` or the error that ended them; and what was said of the engine:
        how often that it is ``well``, and what else.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_tiny_model(folder / _MODEL)
        settings = folder / "gateway.yaml"
        with TritonServer(
            _REPOSITORY, model_dir=folder / _MODEL, env=_PLACES, log_path=folder / "triton.log"
        ) as triton:
            triton.wait_ready()
            settings.write_text(
                f"models: [{{name: {_MODEL}, tokenizer: {folder / _MODEL}, max_seq_len: 2048,"
                f" triton: {{url: '{triton.grpc_url}', stall_s: 3, probe_s: 2}}}}]\n"
            )
            with GatewayProcess(folder / "log", GATEWAY_CONFIG=str(settings)) as gateway:
                outcomes, said = asyncio.run(_load(gateway.url, seconds))
            if not triton.running:
                said[f"Triton {triton.ending}"] += 1
    return outcomes, said
