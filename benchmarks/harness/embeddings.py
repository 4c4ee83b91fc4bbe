"""Embeddings: CPU per request, beside programs that ask Triton directly, and the delay at steady rates."""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from . import cores
from .load import Load, generate, parse, run
from .peers.environments import LITELLM, install
from .processes import BUILT, ROOT, BenchmarkError, Child, SyntheticTriton, free_port, raise_file_limit
from .relay import Tell
from .subjects import KEY, Subject, start, transports, write_repository

_MODEL = "embedding"
_TEXT = "What is the capital of France?"
_PATH = "/v1/embeddings"
_FORMATS = ("base64", "float")
_RATES = (100, 500, 1000)
_SECONDS = 4
_WORKERS = 4
_LOAD = Load("embeddings", 8, 0, 1, rounds=100, path=_PATH)
_DIRECT = 800
_TURNS = 3  # of all subjects in each round
_CONFIG = """max_batch_size: 64
input { name: "text" data_type: TYPE_STRING dims: 1 }
output { name: "embedding" data_type: TYPE_FP32 dims: 384 }
output { name: "token_count" data_type: TYPE_INT32 dims: 1 }
"""


def measure(rounds: int, tell: Tell) -> dict[str, Any]:
    """Requests of one short text, of which the synthetic Triton answers each by return.

    Args:
        rounds: of three turns of all subjects; and runs of each rate. The median counts.
        tell: is told of each round.

    Raises:
        BenchmarkError: a server did not start, or a response was not whole.
    """
    raise_file_limit()
    repository = write_repository()
    (repository / _MODEL).mkdir(exist_ok=True)
    (repository / _MODEL / "config.pbtxt").write_text(_CONFIG)
    cpu: dict[str, list[float]] = {}
    with contextlib.ExitStack() as stack:
        triton = stack.enter_context(SyntheticTriton(repository))
        at = {"url": f"127.0.0.1:{triton.port}", "model": _MODEL, "transport": transports()[0]}
        served = {"name": _MODEL, "task": "embed", "triton": at}
        subject = Subject("gateway", "tokens", transports()[0])
        workers = min(_WORKERS, len(cores.split()[0]))
        gateway = stack.enter_context(start(subject, triton, label="embeddings", more_models=[served], workers=workers))
        litellm = stack.enter_context(_litellm(tell))
        bodies = {each: _body(each) for each in _FORMATS}
        for number in range(rounds):
            for _ in range(_TURNS):
                for name, body in bodies.items():
                    cpu.setdefault(f"gateway, {name}", []).append(_cpu_of(gateway, body))
                direct = [sys.executable, "tritonclient", at["url"]]
                for name, (python, program, address) in {"tritonclient": direct, **litellm}.items():
                    cpu.setdefault(f"{name}, without a server", []).append(_directly(python, program, address))
            tell(f"round {number + 1} of {rounds}: { {name: round(each[-1]) for name, each in cpu.items()} }")
        delays = {rate: _delays(gateway, bodies["base64"], rate, rounds) for rate in _RATES}
    return {
        "rounds": rounds,
        "workers": workers,
        "cpu_us": {name: round(statistics.median(each), 1) for name, each in cpu.items()},
        "delays_us": delays,
    }


def _body(encoding_format: str) -> Path:
    file = BUILT / f"embeddings-{encoding_format}.json"
    file.write_text(json.dumps({"model": _MODEL, "input": _TEXT, "encoding_format": encoding_format}))
    return file


def _cpu_of(gateway: Child, body: Path) -> float:
    return run(gateway, _LOAD, body, plain=True).cpu_us or 0.0


def _directly(python: str, program: str, address: str) -> float:
    command = [python, str(ROOT / "benchmarks" / "embedding_client.py"), program, address, str(_DIRECT)]
    env = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    env.pop("PYTHONPATH", None)
    outcome = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    if outcome.returncode:
        raise BenchmarkError(f"{program}: {outcome.stderr.strip()[-500:]}")
    return float(outcome.stdout.split()[-1])


def _delays(gateway: Child, body: Path, rate: int, rounds: int) -> dict[str, float]:
    found: list[Mapping[str, float]] = []
    for _ in range(rounds):
        count = rate * _SECONDS
        command: list[str | Path] = [BUILT / "ssecli", str(gateway.port), str(count), "1", _PATH, body]
        said = generate(command, {"KEY": KEY, "PLAIN": "1", "STAGGER_US": str(1_000_000 // rate)})
        figures = parse(said)
        if figures["done"] != count or figures["bad"]:
            raise BenchmarkError(f"{rate} requests a second: not every response was whole: {said.strip()}")
        found.append(figures)
    return {name: statistics.median(each[f"end_us_{name}"] for each in found) for name in ("p50", "p99")}


@contextlib.contextmanager
def _litellm(tell: Tell) -> Iterator[dict[str, tuple[str, str, str]]]:
    """LiteLLM's provider for Triton and the server that it asks; nothing where it cannot be installed."""
    try:
        python = install(LITELLM, tell) / "python"
    except BenchmarkError as error:
        tell(f"without LiteLLM: {error}")
        yield {}
        return
    port = free_port()
    command: list[str | Path] = [sys.executable, "-m", "benchmarks.harness.peers.infer_over_http", str(port)]
    with Child("infer-over-http", command, port, cwd=ROOT) as server:
        server.wait_port()
        url = f"http://127.0.0.1:{port}/v2/models/{_MODEL}/infer"
        yield {f"LiteLLM {LITELLM.release}": (str(python), "litellm", url)}
