"""Upstream's LLM API model: what its ``model.yaml`` says beside its configuration (wire contract 1.7)."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway_ops.checking.findings import Severity
from tests.gateway_ops.checking.planting import bad, edit

CONFIG = """name: "tensorrt_llm"
backend: "python"
input { name: "text_input" data_type: TYPE_STRING dims: -1 }
input { name: "sampling_param_max_tokens" data_type: TYPE_INT32 dims: 1 optional: true }
output { name: "text_output" data_type: TYPE_STRING dims: -1 }
model_transaction_policy { decoupled: true }
"""
# What matters of upstream's: the file that it reads, and the module that it imports.
MODEL = """import os

from helpers import get_streaming_from_request


class TritonPythonModel:
    file = os.environ.get("LLM_CONFIG_PATH", "model.yaml")
    streaming = get_streaming_from_request
"""
YAML = """model: meta-llama/Llama-3.1-8B
backend: pytorch
triton_config:
  max_batch_size: 0
  decoupled: True
"""


@pytest.fixture
def llmapi(tmp_path: Path) -> Path:
    """A repository with upstream's LLM API model, without mistakes."""
    version = tmp_path / "repo" / "tensorrt_llm" / "1"
    version.mkdir(parents=True)
    (version.parent / "config.pbtxt").write_text(CONFIG)
    (version / "model.py").write_text(MODEL)
    (version / "helpers.py").write_text("def get_streaming_from_request(): ...\n")
    (version / "model.yaml").write_text(YAML)
    return tmp_path / "repo"


def test_without_mistakes(llmapi: Path) -> None:
    assert bad(llmapi) == []


@pytest.mark.parametrize(
    ("old", "new", "line", "what"),
    [
        ("decoupled: True", "decoupled: False", 5, "decoupled is False: model.py goes by it"),
        ("  decoupled: True\n", "", 1, "It has no triton_config with decoupled"),
        ("triton_config", "tritonconfig", 1, "It has no triton_config with decoupled"),
        ("max_batch_size: 0", "max_batch_size: 16", 4, "max_batch_size is 16, and this model takes no batches"),
        ("backend: pytorch", "backend: [pytorch", 3, "It is not valid YAML"),
        (YAML, "", 1, "It has no triton_config with decoupled"),
    ],
)
def test_its_yaml(llmapi: Path, old: str, new: str, line: int, what: str) -> None:
    file = llmapi / "tensorrt_llm" / "1" / "model.yaml"
    file.write_text(file.read_text().replace(old, new))
    (found,) = bad(llmapi)
    assert (found.severity, found.where) == (Severity.ERROR, f"{file}:{line}")
    assert what in found.what
    assert found.fix


def test_a_text_is_not_false(llmapi: Path) -> None:
    edit(llmapi / "tensorrt_llm" / "1" / "model.yaml", "decoupled: True", 'decoupled: "no"')
    (found,) = bad(llmapi)
    assert (found.severity, "takes for true" in found.what) == (Severity.WARNING, True)


def test_both_must_say_it(llmapi: Path) -> None:
    edit(llmapi / "tensorrt_llm" / "config.pbtxt", "decoupled: true", "decoupled: false")
    (found,) = bad(llmapi)
    assert "It is not decoupled here" in found.what
    assert "model.yaml" in found.fix


def test_a_configuration_that_takes_batches(llmapi: Path) -> None:
    edit(llmapi / "tensorrt_llm" / "config.pbtxt", "^", "max_batch_size: 8\n")
    (found,) = bad(llmapi)
    assert found.what == "max_batch_size is 8, and this model takes no batches."


@pytest.mark.parametrize("gone", ["model.yaml", "helpers.py"])
def test_a_file_that_is_gone(llmapi: Path, gone: str) -> None:
    (llmapi / "tensorrt_llm" / "1" / gone).unlink()
    (found,) = bad(llmapi)
    assert (found.severity, f"1/ has no {gone}" in found.what) == (Severity.ERROR, True)
    assert "all_models/llmapi" in found.fix
