"""LiteLLM before a synthetic Triton over HTTP, by its own provider for Triton."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import yaml

from benchmarks.harness.processes import BUILT, ROOT, Child, Paced, free_port
from benchmarks.harness.relay import Tell
from benchmarks.harness.subjects import KEY

from .environments import LITELLM, install
from .model_folder import NAME
from .peer import Peer


@contextlib.contextmanager
def served(tell: Tell) -> Iterator[Peer]:
    """LiteLLM, and the server that it asks.

    Raises:
        BenchmarkError: it cannot be installed, or does not start.
    """
    binaries = install(LITELLM, tell)
    with _generate_stream() as triton:
        model = {"model": "triton/ensemble", "api_base": f"http://127.0.0.1:{triton.port}/v2/models/ensemble/generate"}
        file = BUILT / "litellm.yaml"
        file.write_text(yaml.safe_dump({"model_list": [{"model_name": NAME, "litellm_params": model}]}))
        port = free_port()
        command: list[str | Path] = [binaries / "litellm", "--config", file, "--port", str(port), "--host", "127.0.0.1"]
        env = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_MASTER_KEY": KEY}
        with Child("litellm", command, port, env=env) as child:
            child.wait_http("/health/liveliness")
            yield Peer(
                name="LiteLLM",
                release=LITELLM.release,
                child=child,
                pace=triton.pace,
                upstream="Triton's HTTP `generate_stream` (text), from a synthetic server in Python",
                without="use a template, take the engine's usage, say `length`, show metrics",
                slow=True,
            )


def _generate_stream() -> Paced:
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.harness.peers.generate_stream", str(port)]
    server = Paced("generate-stream", command, port, cwd=ROOT)
    server.wait_port()
    return server
