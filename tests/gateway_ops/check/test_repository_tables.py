"""Models held against the contract's tables where no ensemble compares them: the gateway calls the engine itself."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway_ops.check.findings import Severity
from tests.gateway_ops.check.planting import BLS, ENGINE, bad, edit


@pytest.fixture
def engine_alone(repo: Path) -> Path:
    """The engine by itself, which is all that the gateway needs."""
    for folder in repo.iterdir():
        if folder.name != "tensorrt_llm":
            shutil.rmtree(folder) if folder.is_dir() else folder.unlink()
    return repo


@pytest.mark.parametrize(
    ("pattern", "replacement", "what", "fix"),
    [
        (
            r'input \{ name: "input_lengths"[^\n]*\n',
            "",
            "It has no input 'input_lengths', which tensorrt_llm needs for every request.",
            'Declare input { name: "input_lengths" data_type: TYPE_INT32 dims: [1] }.',
        ),
        (
            r'(name: "context_logits" data_type: )TYPE_FP32',
            r"\1TYPE_INT32",
            "The output 'context_logits' is INT32; tensorrt_llm declares it as FP16, FP32 or BF16.",
            "TYPE_FP32",
        ),
    ],
)
def test_an_engine_by_itself_is_held_against_the_contract(
    pattern: str, replacement: str, what: str, fix: str, engine_alone: Path
) -> None:
    assert bad(engine_alone) == []
    edit(engine_alone / ENGINE, pattern, replacement)
    (found,) = (each for each in bad(engine_alone) if each.what == what)  # the gateway may have a word for it as well
    assert found.severity is Severity.ERROR
    assert fix in found.what + found.fix


@pytest.mark.parametrize("gone", [("input_ids",), ("input_lengths", "request_output_len")])
def test_an_engine_is_known_without_all_its_tensors(engine_alone: Path, gone: tuple[str, ...]) -> None:
    for name in gone:
        edit(engine_alone / ENGINE, rf'input \{{ name: "{name}"[^\n]*\n', "")
    edit(engine_alone / ENGINE, r"model_transaction_policy \{[^\n]*\n", "")
    found = {re.split("[,:]", finding.what)[0] for finding in bad(engine_alone)}
    refusal = "model 'tensorrt_llm' is of an unsupported kind"
    assert found == {refusal, *(f"It has no input {name!r}" for name in gone)}


def test_a_python_engine_is_known_by_most_of_its_tensors(rendered: Callable[[str], Path], tmp_path: Path) -> None:
    repo = shutil.copytree(rendered("llmapi-tp4"), tmp_path / "repo")
    for name in ("preprocessing", "postprocessing", "ensemble", "tensorrt_llm_bls"):
        shutil.rmtree(repo / name)
    assert bad(repo) == []
    edit(repo / ENGINE, r'name: "input_ids"', 'name: "input_idz"')
    named, rejected = bad(repo)
    assert named.fix == "Did you mean 'input_ids'?"
    assert "is of an unsupported kind" in rejected.what


@pytest.mark.parametrize("tensor", ["prompt_embedding_table", "lora_weights"])
def test_types_that_a_deployer_chooses_are_the_same_in_bls_and_engine(repo: Path, tensor: str) -> None:
    shutil.rmtree(repo / "ensemble")
    edit(repo / ENGINE, rf'(name: "{tensor}" data_type: )TYPE_FP16', r"\1TYPE_BF16")
    (found,) = bad(repo)
    assert found.what == f"The input {tensor!r} is FP16, but BF16 in tensorrt_llm, which it calls."
    edit(repo / BLS, rf'(name: "{tensor}" data_type: )TYPE_FP16', r"\1TYPE_BF16")
    assert bad(repo) == []


@pytest.mark.parametrize("gone", ["preprocessing", "tensorrt_llm", "postprocessing"])
def test_what_a_bls_model_calls_without_saying_so(repo: Path, gone: str) -> None:
    shutil.rmtree(repo / "ensemble")
    shutil.rmtree(repo / gone)
    edit(repo / BLS, r'parameters \{ key: "tensorrt_llm_model_name"[^\n]*\n', "")
    (found,) = bad(repo)
    assert (found.severity, found.what) == (Severity.ERROR, f"It calls {gone}, which is not in this repository.")


FOREIGN = {
    "text_generator": 'input { name: "text_input" data_type: TYPE_STRING dims: 2 }\n'
    'output { name: "text_output" data_type: TYPE_UINT8 dims: 1 }\n',
    "embedder": 'input { name: "input_ids" data_type: TYPE_INT64 dims: -1 }\n'
    'input { name: "attention_mask" data_type: TYPE_INT64 dims: -1 }\n'
    'output { name: "embedding" data_type: TYPE_FP32 dims: 768 }\n',
    "chooser": 'input { name: "messages" data_type: TYPE_STRING dims: 1 }\n'
    'output { name: "answer" data_type: TYPE_STRING dims: 1 }\n'
    'parameters { key: "tensorrt_llm_model_name" value { string_value: "tensorrt_llm" } }\n',
}


@pytest.mark.parametrize("name", FOREIGN)
def test_other_models_of_a_repository_are_not_held_against_the_tables(repo: Path, name: str) -> None:
    (repo / name / "1").mkdir(parents=True)
    (repo / name / "1" / "model.py").write_text("class TritonPythonModel: ...\n")
    (repo / name / "config.pbtxt").write_text('backend: "python"\nmax_batch_size: 8\n' + FOREIGN[name])
    assert bad(repo) == []
