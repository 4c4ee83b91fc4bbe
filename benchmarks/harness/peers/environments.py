"""The environments that other gateways are installed into, and their versions."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.processes import BUILT, BenchmarkError
from benchmarks.harness.relay import Tell

FOLDER = BUILT / "peers"


@dataclass(frozen=True)
class Environment:
    """What pip installs for a gateway.

    Attributes:
        name: of its folder.
        release: of the gateway.
        steps: arguments of ``pip install``, one call for each.
    """

    name: str
    release: str
    steps: tuple[tuple[str, ...], ...]


LITELLM = Environment("litellm", "1.105.0", (("litellm[proxy]==1.105.0",),))
# Its own list of dependencies cannot be had everywhere; the front end needs no more than these.
DYNAMO = Environment(
    "dynamo",
    "1.6.1",
    (
        ("ai-dynamo-runtime==1.6.1", "uvloop==0.23.0", "packaging==26.3", "pyyaml==6.0.3", "msgspec==0.22.0"),
        ("--no-deps", "ai-dynamo==1.6.1"),
    ),
)
SMG = Environment("smg", "1.13.0", (("smg==1.13.0", "smg-grpc-proto==0.4.28", "grpcio==1.85.1"),))
# Its requirements, those of Triton's Python API, and what builds the latter. Both are of one release, newer than the
# Triton of nvidia-pytriton (2.51), and call nothing that this one lacks.
TRITON = Environment(
    "triton",
    "r26.06",
    (
        ("fastapi==0.121.2", "openai==1.107.3", "httpx==0.27.2", "partial-json-parser==0.2.1.1.post7"),
        ("numpy==1.26.4", "transformers==5.23.0", "uvicorn==0.54.0", "jinja2==3.1.6", "pybind11==2.13.6"),
    ),
)


def install(environment: Environment, tell: Tell) -> Path:
    """Make an environment, once for each list of versions; its folder of programs.

    Raises:
        BenchmarkError: pip could not install it; the message is pip's last error.
    """
    folder = FOLDER / environment.name
    done, recipe = folder / "installed", repr(environment.steps)
    if not done.exists() or done.read_text() != recipe:
        tell(f"installing {environment.name} (minutes)")
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        pip: list[str | Path] = [
            folder / "bin" / "python",
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
        ]
        for step in environment.steps:
            outcome = subprocess.run(
                [*pip, *step], capture_output=True, text=True, check=False, env={**os.environ, "NO_COLOR": "1"}
            )
            if outcome.returncode:
                raise BenchmarkError(f"not installed, {' '.join(step)}: {last_error(outcome.stderr)}")
        done.write_text(recipe)
    return folder / "bin"


def last_error(said: str) -> str:
    """The last line about an error in what a program said."""
    lines = [line.strip() for line in said.splitlines() if "error" in line.lower() or "fatal" in line.lower()]
    return lines[-1] if lines else "it did not say why"
