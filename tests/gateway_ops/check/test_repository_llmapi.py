"""Upstream's LLM API model: what its ``model.yaml`` says beside its configuration (wire contract 1.7)."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.triton.discovery import describe
from gateway.triton.inspection import read_model_file
from gateway.triton.pipeline import assemble
from gateway_ops.check.findings import Severity
from gateway_ops.check.repository import check_repository
from tests.doubles.llmapi.repository import LlmapiConfig, write_model
from tests.doubles.llmapi.versions import VERSIONS
from tests.gateway_ops.check.planting import bad, edit

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


def stock(folder: Path, version: str = "1.3", yaml: str = YAML, *, policy: bool = True) -> Path:
    """A repository with upstream's LLM API model, without mistakes."""
    write_model(folder, LlmapiConfig(version, "tensorrt_llm", policy=policy), folder)
    files = folder / "tensorrt_llm" / "1"
    (files / "model.py").write_text(MODEL)
    (files / "helpers.py").write_text("def get_streaming_from_request(): ...\n")
    (files / "model.yaml").write_text(yaml)
    return folder


@pytest.fixture
def llmapi(tmp_path: Path) -> Path:
    """The same, of the newest version."""
    return stock(tmp_path / "repo")


WHOLE = YAML.replace("True", "False")
SAID_ONCE = "decoupled is set in model.yaml only: with --disable-auto-complete-config"
ONE_EVENT = "the model returns one response, so that a stream has the whole text in one event"


@pytest.mark.parametrize("version", VERSIONS)
def test_without_mistakes(tmp_path: Path, version: str) -> None:
    assert bad(stock(tmp_path, version)) == []


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("yaml", "newest", "older"),
    [(YAML, ("warning", SAID_ONCE), ("info", SAID_ONCE)), (WHOLE, ("warning", ONE_EVENT), ("info", ONE_EVENT))],
)
def test_what_the_yaml_alone_says_of_streaming(
    tmp_path: Path, version: str, yaml: str, newest: tuple[str, str], older: tuple[str, str]
) -> None:
    """Before 1.3 no answer comes in pieces, whatever is set."""
    severity, words = newest if version == "1.3" else older
    repo = stock(tmp_path, version, yaml, policy=False)
    assert [found.severity.value for found in check_repository(repo) if words in found.what] == [severity]
    assert len(bad(repo)) == (version == "1.3")


def test_losses_are_the_gateways(llmapi: Path) -> None:
    """Those that no setting cures are information."""
    view = read_model_file(llmapi / "tensorrt_llm" / "config.pbtxt")
    said = {f"{loss}." for loss in describe(assemble(view, {}), "auto").losses}
    assert said
    assert {(found.severity, found.what) for found in check_repository(llmapi)} == {
        (Severity.INFO, loss) for loss in said
    }


@pytest.mark.parametrize(("version", "named"), [("1.0", True), ("1.2", True), ("1.3", False)])
def test_adapters_that_make_every_request_fail(tmp_path: Path, version: str, named: bool) -> None:
    repo = stock(tmp_path, version, f"{YAML}lora_config:\n  max_lora_rank: 8\n")
    assert [(found.severity, "rejects every request" in found.what) for found in bad(repo)] == [
        (Severity.ERROR, True)
    ] * named


@pytest.mark.parametrize(
    ("old", "new", "line", "what"),
    [
        ("decoupled: True", 'decoupled: "no"', 5, "reads as true"),
        ("decoupled: True", "decoupled: False", 5, "decoupled is False, but true in config.pbtxt"),
        ("  decoupled: True\n", "", 1, "triton_config.decoupled is missing"),
        ("triton_config", "tritonconfig", 1, "triton_config.decoupled is missing"),
        ("max_batch_size: 0", "max_batch_size: 16", 4, "max_batch_size is 16, but this model does not support batches"),
        ("backend: pytorch", "backend: [pytorch", 3, "It is not valid YAML"),
        (YAML, "", 1, "triton_config.decoupled is missing"),
    ],
)
def test_its_yaml(llmapi: Path, old: str, new: str, line: int, what: str) -> None:
    file = llmapi / "tensorrt_llm" / "1" / "model.yaml"
    file.write_text(file.read_text().replace(old, new))
    (found,) = bad(llmapi)
    severity = Severity.WARNING if what == "reads as true" else Severity.ERROR
    assert (found.severity, found.where) == (severity, f"{file}:{line}")
    assert what in found.what
    assert found.fix


def test_a_configuration_that_takes_batches(llmapi: Path) -> None:
    edit(llmapi / "tensorrt_llm" / "config.pbtxt", "^", "max_batch_size: 8\n")
    assert [(found.severity, found.what) for found in bad(llmapi)] == [
        (Severity.ERROR, "max_batch_size is 8, but this model does not support batches."),
        (Severity.ERROR,
         ("model 'tensorrt_llm' of the LLM API has a max_batch_size above 0, which its code does not support; "
          "set it to 0.")),
    ]  # fmt: skip


@pytest.mark.parametrize("gone", ["model.yaml", "helpers.py"])
def test_a_file_that_is_gone(llmapi: Path, gone: str) -> None:
    (llmapi / "tensorrt_llm" / "1" / gone).unlink()
    (found,) = bad(llmapi)
    assert (found.severity, f"1/ has no {gone}" in found.what) == (Severity.ERROR, True)
    assert "all_models/llmapi" in found.fix
