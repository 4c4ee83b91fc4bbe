"""Triton's own OpenAI front end: nvidia-pytriton's Triton in its process, with a backend that infers nothing."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from benchmarks.harness.processes import BenchmarkError, Paced, free_port
from benchmarks.harness.relay import Tell

from .environments import FOLDER, TRITON, install, last_error
from .model_folder import NAME, model_folder
from .peer import Peer

_SOURCES = FOLDER / "triton-sources"  # `core` and `server`; what is there already is taken
_REMOTE = "https://github.com/triton-inference-server"
_REPOSITORY = FOLDER / "triton-repository"
_API = FOLDER / "triton-api"
_INPUTS = {
    "stream": "BOOL",
    "temperature": "FP32",
    "top_p": "FP32",
    "presence_penalty": "FP32",
    "frequency_penalty": "FP32",
    "return_num_input_tokens": "BOOL",
    "return_num_output_tokens": "BOOL",
}


@contextlib.contextmanager
def served(tell: Tell) -> Iterator[Peer]:
    """The front end, whose process holds Triton too.

    Raises:
        BenchmarkError: it cannot be installed or built, or does not start.
    """
    python = install(TRITON, tell) / "python"
    library = _library()
    for name in ("core", "server"):
        _source(name, tell)
    _build(python, library, tell)
    _write_repository()
    port = free_port()
    command: list[str | Path] = [
        python, _SOURCES / "server" / "python" / "openai" / "openai_frontend" / "main.py",
        "--host", "127.0.0.1", "--openai-port", str(port), "--model-repository", _REPOSITORY,
        "--tokenizer", model_folder(), "--backend", "tensorrtllm",
    ]  # fmt: skip
    env = {"LD_LIBRARY_PATH": str(library.parent), "PYTHONPATH": str(_API)}
    with Paced("triton-front-end", command, port, env=env) as child:
        child.wait_http("/v1/models")
        yield Peer(
            name="Triton's front end",
            release=TRITON.release,
            child=child,
            pace=child.pace,
            upstream="Triton in its own process (text), whose CPU is in the figure; a backend in C++",
            without="check keys, say `length`, speak to another Triton",
        )


def _library() -> Path:
    """The library of Triton that nvidia-pytriton brings."""
    distribution = importlib.metadata.distribution("nvidia-pytriton")
    folder = Path(str(distribution.locate_file("nvidia_pytriton.libs")))
    found = sorted(folder.glob("libtritonserver-*.so"))
    if not found:
        raise BenchmarkError(f"nvidia-pytriton {distribution.version} has no libtritonserver")
    return found[0]


def _source(name: str, tell: Tell) -> None:
    """A repository of Triton at its release."""
    if (_SOURCES / name / "python").is_dir():
        return
    tell(f"fetching {name} of Triton, {TRITON.release}")
    _run(["git", "clone", "--quiet", "--depth=1", f"--branch={TRITON.release}", f"{_REMOTE}/{name}", _SOURCES / name])


def _build(python: Path, library: Path, tell: Tell) -> None:
    """Triton's Python API and the backend, both linked against the library; once for each library and backend."""
    source, recipe = Path(__file__).with_name("paced_backend.cc"), _API / "made-of"
    made_of = f"{library} {TRITON.release} {source.stat().st_mtime_ns}"
    if recipe.exists() and recipe.read_text() == made_of:
        return
    tell("building Triton's Python API and the backend (half a minute)")
    shutil.rmtree(_API, ignore_errors=True)
    shutil.copytree(_SOURCES / "core" / "python" / "tritonserver", _API / "tritonserver")
    asked = subprocess.run([python, "-m", "pybind11", "--includes"], capture_output=True, text=True, check=True)
    common: list[str | Path] = ["g++", "-O2", "-std=c++17", "-w", "-shared", "-fPIC", *asked.stdout.split()]
    common += ["-I", _SOURCES / "core" / "include", f"-Wl,-rpath,{library.parent}", "-Wl,--allow-shlib-undefined"]
    common += ["-Wl,--no-as-needed", f"-L{library.parent}", f"-l:{library.name}", "-lpthread"]
    bindings = _API / "tritonserver" / "_c"
    _run([*common, bindings / "tritonserver_pybind.cc", "-o", bindings / "triton_bindings.so"])
    (_REPOSITORY / NAME / "1").mkdir(parents=True, exist_ok=True)
    _run([*common, source, "-o", _REPOSITORY / NAME / "1" / "libtriton_paced.so"])
    recipe.write_text(made_of)


def _write_repository() -> None:
    """The model: inputs of TensorRT-LLM's ensemble that the front end sends."""
    optional = [
        f'input {{ name: "{name}" data_type: TYPE_{kind} dims: 1 optional: true }}' for name, kind in _INPUTS.items()
    ]
    lines = [
        'backend: "paced"',
        "max_batch_size: 64",
        "model_transaction_policy { decoupled: true }",
        "instance_group [ { kind: KIND_CPU } ]",
        'input { name: "text_input" data_type: TYPE_STRING dims: 1 }',
        'input { name: "max_tokens" data_type: TYPE_INT32 dims: 1 }',
        *optional,
        'output { name: "text_output" data_type: TYPE_STRING dims: 1 }',
        'output { name: "num_input_tokens" data_type: TYPE_INT32 dims: 1 }',
        'output { name: "num_output_tokens" data_type: TYPE_INT32 dims: 1 }',
    ]
    (_REPOSITORY / NAME / "config.pbtxt").write_text("\n".join(lines) + "\n")


def _run(command: list[str | Path]) -> None:
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "GIT_TERMINAL_PROMPT": "0"}
    )
    if done.returncode:
        raise BenchmarkError(f"{command[0]} failed: {last_error(done.stderr)}")
