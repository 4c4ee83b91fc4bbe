"""An image of TensorRT-LLM without TensorRT-LLM: stand-ins on the PATH, and deployments that are built by them."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from gateway_ops.cli.root import app
from gateway_ops.repository.tool_flags import TABLES, table_of
from tests.bound_process import BoundProcess
from tests.gateway_ops.engines.standin import CONFIG

STANDIN = Path(__file__).with_name("standin.py")


@dataclass
class Image:
    """The stand-ins, and a folder that is the disk of their container."""

    disk: Path
    home: Path
    monkeypatch: pytest.MonkeyPatch

    @property
    def file(self) -> Path:
        return self.disk / "gateway.yaml"

    @property
    def engine(self) -> Path:
        return self.disk / "engines" / "small"

    def set(self, name: str, value: str) -> None:
        self.monkeypatch.setenv(f"STANDIN_{name}", value)

    def calls(self) -> list[str]:
        """The tools that were run, in their order."""
        path = self.home / "calls.jsonl"
        return [json.loads(line)[0] for line in path.read_text().splitlines()] if path.exists() else []

    def write(self, *changes: dict[str, Any]) -> None:
        """Write the settings file: a small deployment, once for each mapping of changes."""
        self.file.write_text(yaml.safe_dump({"deployments": [self.small() | change for change in changes or ({},)]}))

    def small(self) -> dict[str, Any]:
        model = {"source": str(self.disk / "model"), "dtype": "bfloat16"}
        limits = {"max_batch_size": 8, "max_input_len": 1000, "max_seq_len": 2000, "max_num_tokens": 4096}
        return {
            "name": "small", "engine": "tensorrt", "model": model, "engine_dir": str(self.engine), "limits": limits,
            "triton": {"max_batch_size": 8},
        }  # fmt: skip

    def gateway(self, *words: str) -> Result:
        """Run ``gateway engine`` with the settings file."""
        return CliRunner().invoke(app, ["engine", words[0], str(self.file), *words[1:]])

    def built(self, *words: str) -> Result:
        """Build, which must succeed."""
        result = self.gateway("build", *words)
        assert result.exit_code == 0, result.output
        return result

    def rejected(self, *words: str) -> str:
        """What a build says that must fail."""
        result = self.gateway("build", *words)
        assert result.exit_code == 1, result.output
        return result.output

    def started(self, *words: str) -> BoundProcess[str]:
        """A build in a process of its own."""
        command = [sys.executable, "-m", "gateway_ops.cli", "engine", "build", str(self.file), *words]
        return BoundProcess(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def hanging(self, process: subprocess.Popen[str]) -> int:
        """The process id of a stand-in that hangs."""
        path = self.home / "hanging"
        while process.poll() is None:
            if path.exists() and path.read_text():
                return int(path.read_text())
        raise AssertionError(process.communicate())


@pytest.fixture
def image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Image]:
    """Stand-ins for TensorRT-LLM 1.2.1 on an L4, and a model on their disk."""
    home, disk = tmp_path / "image", tmp_path / "disk"
    (disk / "model").mkdir(parents=True)
    (disk / "model" / "config.json").write_text(json.dumps(CONFIG))
    home.mkdir()
    write_tables(home, "1.2.1")
    asked = 'if [ "$1" = -c ]; then test -n "$STANDIN_TRTLLM" && echo "$STANDIN_TRTLLM"; exit; fi\n'
    for name in ("trtllm-build", "python3", "hf"):
        words = shlex.join([sys.executable, "-SE", str(STANDIN), str(home), name])
        executable(home / name, f'{asked if name == "python3" else ""}exec {words} "$@"')
    executable(home / "nvidia-smi", 'echo "$STANDIN_GPU"')
    monkeypatch.setenv("PATH", f"{home}:/usr/bin:/bin")
    monkeypatch.setenv("TRTLLM_EXAMPLES", "/app/tensorrt_llm/examples")
    monkeypatch.setenv("MODELOPT_EXAMPLES", "/opt/modelopt/examples")
    before = signal.getsignal(signal.SIGTERM)
    made = Image(disk, home, monkeypatch)
    made.set("TRTLLM", "1.2.1")
    made.set("GPU", "NVIDIA L4, 23034, 8.9")
    made.write()
    yield made
    signal.signal(signal.SIGTERM, before)


def executable(path: Path, script: str) -> None:
    """Write a program for the shell."""
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def write_tables(home: Path, version: str) -> None:
    """Write the recorded flags of a version where the stand-ins read them."""
    tables = {}
    for tool in {table.tool for table in TABLES}:
        table = table_of(tool, version)
        if table is not None:
            flags = {name: [flag.values, flag.choices] for name, flag in table.flags.items()}
            tables[tool] = {"flags": flags, "positional": table.positional}
    (home / "tables.json").write_text(json.dumps(tables))
