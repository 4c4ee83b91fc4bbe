"""What a review says that Triton refuses, the real Triton refuses, in one server that loads one spoiled model each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from gateway_ops.check.findings import Severity
from gateway_ops.check.repository.review import check_repository
from gateway_ops.local_stack.tritonserver import TritonServer

STEP = """backend: "python"
max_batch_size: 8
input { name: "x" data_type: TYPE_INT32 dims: 1 }
output { name: "y" data_type: TYPE_INT32 dims: 1 }
output { name: "z" data_type: TYPE_INT32 dims: 1 }
instance_group { count: 1 kind: KIND_CPU }
"""
DECOUPLED = "model_transaction_policy { decoupled: true }\n"
ENSEMBLE = """platform: "ensemble"
max_batch_size: 8
input { name: "a" data_type: TYPE_INT32 dims: 1 }
output { name: "b" data_type: TYPE_INT32 dims: 1 }
ensemble_scheduling { step { model_name: "step" model_version: -1
  input_map { key: "x" value: "a" } output_map { key: "y" value: "b" } } }
"""
MODEL = """import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        raise AssertionError("it is only loaded here")
"""
# The model, what is replaced in it, by what; and what the review says. None: Triton loads it, and the review is silent.
SPOILED: dict[str, tuple[str, str, str, str | None]] = {
    "step": (STEP, "", "", None),
    "streams": (STEP, "max", f"{DECOUPLED}max", None),
    "pipe": (ENSEMBLE, "", "", None),
    "pipe_of_one_version": (ENSEMBLE, "model_version: -1", "model_version: 1", None),
    "smaller_pipe": (ENSEMBLE, "max_batch_size: 8", "max_batch_size: 4", None),
    "cached": (STEP, "max", "response_cache { enable: false }\nmax", None),
    "batches": (STEP, "max", "dynamic_batching { preferred_batch_size: [ 4, 8 ] }\nmax", None),
    "too_great_batch": (
        STEP,
        "max",
        "dynamic_batching { preferred_batch_size: 32 }\nmax",
        "preferred_batch_size is 32",
    ),
    "no_batch": (STEP, "max", "dynamic_batching { preferred_batch_size: 0 }\nmax", "preferred_batch_size is 0"),
    "delays": (
        STEP,
        "max",
        "dynamic_batching { preserve_ordering: true default_queue_policy { default_timeout_microseconds: 9 "
        "timeout_action: DELAY } }\nmax",
        "timeout_action cannot be DELAY",
    ),
    "cpu_with_gpus": (STEP, "KIND_CPU", "KIND_CPU gpus: 0", "KIND_CPU and gpus: [0]"),
    "cached_stream": (STEP, "max", f"{DECOUPLED}response_cache {{ enable: true }}\nmax", "no response cache"),
    "no_type": (STEP, 'name: "x" data_type: TYPE_INT32', 'name: "x"', "'x' has no data_type"),
    "no_dims": (STEP, 'name: "x" data_type: TYPE_INT32 dims: 1', 'name: "x" data_type: TYPE_INT32', "'x' has no dims"),
    "empty_dim": (STEP, "dims: 1", "dims: 0", "has dims [0]"),
    "no_name": (STEP, 'name: "x" ', "", "has no name"),
    "negative": (STEP, "max_batch_size: 8", "max_batch_size: -1", "max_batch_size is -1"),
    "other_version": (ENSEMBLE, "model_version: -1", "model_version: 3", "runs version 3 of step"),
    "no_version_named": (ENSEMBLE, "model_version: -1", "", "runs version 0 of step"),
    "idle_input": (
        ENSEMBLE,
        "output {",
        'input { name: "c" data_type: TYPE_INT32 dims: 1 }\noutput {',
        "'c' goes to no",
    ),
    "idle_output": (
        ENSEMBLE,
        "} } }",
        '} output_map { key: "z" value: "d" } } }',
        "mapped to 'd', which no step takes as input",
    ),
    "made_twice": (
        ENSEMBLE,
        "} } }",
        '} output_map { key: "z" value: "b" } } }',
        "2 outputs of steps are mapped to 'b'",
    ),
    "with_instances": (ENSEMBLE, "max", "instance_group { count: 1 }\nmax", "no instance_group"),
    "with_warmup": (ENSEMBLE, "max", 'model_warmup { name: "w" }\nmax', "no model_warmup"),
    "with_optimization": (ENSEMBLE, "max", "optimization { }\nmax", "no optimization"),
    "with_backend": (ENSEMBLE, "max", 'backend: "python"\nmax', "the backend 'python'"),
    "cached_pipe": (
        ENSEMBLE.replace('"step"', '"streams"'),
        "max",
        "response_cache { enable: true }\nmax",
        "streams is decoupled",
    ),
}
# Version folders. With 1abc, which Triton takes for 1, a load is never answered; beyond 64 bits Triton ends.
FOLDERS = {"zero_in_front": "01", "superscript": "²", "letter_in_front": "v1"}
NO_VERSION = "A version folder such as 1/ is missing"


def write_model(folder: Path, text: str, version: str = "1") -> None:
    (folder / version).mkdir(parents=True)
    (folder / "config.pbtxt").write_text(text)
    (folder / version / "model.py").write_text(MODEL)


@pytest.fixture(scope="module")
def spoiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("refused") / "repo"
    for name, (text, old, new, _) in SPOILED.items():
        assert old in text, name
        write_model(folder / name, text.replace(old, new, 1))
    for name, version in FOLDERS.items():
        write_model(folder / name, STEP, version)
    return folder


@pytest.fixture(scope="module")
def loading(spoiled: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    log = tmp_path_factory.mktemp("refusals") / "triton.log"
    explicit = ["--model-control-mode=explicit"]
    with TritonServer(spoiled, model_dir=None, engine=None, log_path=log, options=explicit) as server:
        server.wait_ready([])
        yield server


def loads(server: TritonServer, name: str) -> bool:
    answer = httpx.post(f"{server.http_url}/v2/repository/models/{name}/load", json={}, timeout=30, trust_env=False)
    return answer.status_code == httpx.codes.OK


def test_what_is_said_to_be_refused_is_refused(spoiled: Path, loading: TritonServer) -> None:
    said = [found for found in check_repository(spoiled) if found.severity is Severity.ERROR]
    expected = {name: what for name, (*_, what) in SPOILED.items()} | dict.fromkeys(FOLDERS, NO_VERSION)
    for name, what in expected.items():
        here = [found.what for found in said if f"/{name}/" in f"{found.where}/"]
        assert loads(loading, name) == (what is None), name
        assert [one for one in here if what and what in one] if what is not None else not here, (name, here)
