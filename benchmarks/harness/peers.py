"""Other gateways under the same loads. Each is installed by name into an environment of its own."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from .load import Load, Result, run
from .processes import BUILT, ROOT, BenchmarkError, Child, Paced, SyntheticTriton, free_port
from .relay import Tell
from .subjects import KEY, Subject, body, start, transports, write_repository

# Fewer tokens than in the relay's loads: some of these take seconds for what others do at once.
_LOADS = (Load("64x20ms", 64, 20_000, 50), Load("burst", 64, 0, 100))
_LITELLM = "LiteLLM, triton provider"
_DYNAMO = "ai-dynamo front end"
_HTTP = "HTTP generate_stream (a synthetic server in Python)"
_GRPC = "gRPC ModelStreamInfer"


def measure(rounds: int, tell: Tell) -> dict[str, Any]:
    """Interleaved runs of this gateway, the naive one and every peer that can be installed."""
    left_out: dict[str, str] = {}
    notes = {}
    with contextlib.ExitStack() as stack:
        triton = stack.enter_context(SyntheticTriton(write_repository()))
        generate = stack.enter_context(_generate_stream())
        children: dict[str, Child] = {}
        for subject in (Subject("naive", "text"), *(Subject("gateway", "text", name) for name in transports()[1])):
            children[subject.name] = stack.enter_context(start(subject, triton))
            notes[subject.name] = _GRPC
        try:
            children[_LITELLM] = stack.enter_context(_litellm(generate.port, tell))
            notes[_LITELLM] = _HTTP
        except BenchmarkError as error:
            left_out[_LITELLM] = str(error)
        left_out[_DYNAMO] = _try_dynamo(tell)
        runs: dict[str, dict[str, list[Result]]] = {}
        for number in range(1, rounds + 1):
            for load in _LOADS:
                triton.pace(load.delay_us)
                generate.pace(load.delay_us)
                for name, child in children.items():
                    runs.setdefault(name, {}).setdefault(load.name, []).append(run(child, load, body(load.tokens)))
            tell(f"run {number} of {rounds}")
    medians = {
        name: {load: {**Result.median(results).as_json(), "note": notes[name]} for load, results in loads.items()}
        for name, loads in runs.items()
    }
    return {"peers": medians, "left_out": {name: reason for name, reason in left_out.items() if reason}}


def _generate_stream() -> Paced:
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.harness.generate_stream", str(port)]
    server = Paced("generate-stream", command, port, cwd=ROOT)
    server.wait_port()
    return server


def _litellm(port: int, tell: Tell) -> Child:
    binaries = _install("litellm", ["litellm[proxy]"], tell)
    model = {"model": "triton/ensemble", "api_base": f"http://127.0.0.1:{port}/v2/models/ensemble/generate"}
    file = BUILT / "litellm.yaml"
    file.write_text(yaml.safe_dump({"model_list": [{"model_name": "bench", "litellm_params": model}]}))
    own = free_port()
    command: list[str | Path] = [binaries / "litellm", "--config", file, "--port", str(own), "--host", "127.0.0.1"]
    child = Child("litellm", command, own, env={"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_MASTER_KEY": KEY})
    try:
        child.wait_http("/health/liveliness")
        run(child, Load("warm-up", 2, 0, 5), body(5))
    except BenchmarkError:
        child.stop()
        raise
    return child


def _try_dynamo(tell: Tell) -> str:
    """Try to install it; return the reason why it is not measured."""
    try:
        _install("dynamo", ["ai-dynamo"], tell)
    except BenchmarkError as error:
        return str(error)
    return "installed, but it takes a worker of its own and no Triton server: there is nothing to compare in this loop."


def _install(name: str, requirements: list[str], tell: Tell) -> Path:
    """An environment with a package in it, made once; its folder of programs.

    Raises:
        BenchmarkError: pip could not install it; the message is pip's last error.
    """
    folder = BUILT / "peers" / name
    done = folder / "installed"
    if not done.exists():
        tell(f"installing {' '.join(requirements)} (minutes)")
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        python = folder / "bin" / "python"
        pip: list[str | Path] = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        outcome = subprocess.run(
            [*pip, *requirements], capture_output=True, text=True, check=False, env={**os.environ, "NO_COLOR": "1"}
        )
        if outcome.returncode:
            lines = [line.strip() for line in outcome.stderr.splitlines() if "error" in line.lower()]
            raise BenchmarkError(f"not installed, {' '.join(requirements)}: {lines[-1] if lines else 'pip failed'}")
        done.touch()
    return folder / "bin"
