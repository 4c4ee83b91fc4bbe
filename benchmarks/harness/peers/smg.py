"""SMG, SGLang's gateway, before a synthetic ``trtllm-serve --grpc``."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.harness.client import call
from benchmarks.harness.processes import ROOT, BenchmarkError, Child, Paced, free_port
from benchmarks.harness.relay import Tell
from benchmarks.harness.subjects import KEY

from .environments import SMG, install
from .model_folder import NAME, model_folder
from .peer import Peer

_KNOWN_S = 60.0


@contextlib.contextmanager
def served(tell: Tell) -> Iterator[Peer]:
    """SMG and the server that it asks, whose CPU is not counted.

    Raises:
        BenchmarkError: it cannot be installed, or does not start.
    """
    binaries, folder = install(SMG, tell), model_folder()
    engine_port, port, metrics = free_port(), free_port(), free_port()
    worker: list[str | Path] = [
        binaries / "python",
        "-m",
        "benchmarks.harness.peers.smg_worker",
        str(engine_port),
        NAME,
    ]
    with Paced("smg-worker", worker, engine_port, cwd=ROOT) as engine:
        engine.wait_port()
        command: list[str | Path] = [binaries / "smg", "launch", "--host", "127.0.0.1", "--port", str(port)]
        command += ["--worker-urls", f"grpc://127.0.0.1:{engine_port}", "--model-path", folder, "--api-key", KEY]
        command += ["--prometheus-host", "127.0.0.1", "--prometheus-port", str(metrics)]
        with Child("smg", command, port) as child:
            _wait_known(child)
            yield Peer(
                name="SMG",
                release=SMG.release,
                child=child,
                pace=engine.pace,
                upstream="the gRPC of `trtllm-serve` (token ids), from a synthetic server in Python",
                without="speak to Triton",
            )


def _wait_known(child: Child) -> None:
    """Wait until it knows the worker's model and has its tokenizer."""
    child.wait_http("/health")
    begun = time.monotonic()
    while True:
        with contextlib.suppress(BenchmarkError):
            call(child, "POST", "/v1/chat/completions", _HELLO)
            return
        if time.monotonic() - begun > _KNOWN_S:
            raise BenchmarkError("SMG did not take to its worker")
        time.sleep(0.1)


_HELLO = b'{"model": "bench", "max_tokens": 1, "messages": [{"role": "user", "content": "Hello"}]}'
