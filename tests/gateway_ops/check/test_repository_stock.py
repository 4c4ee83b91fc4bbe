"""Stock repositories of every version as somebody fills them in by hand: what is said is true, and nothing else."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from gateway_ops.check.findings import Finding, Severity
from gateway_ops.check.repository import check_repository
from gateway_ops.repository.pbtxt import to_text
from tests.gateway_ops.check.conftest import OLDER
from tests.gateway_ops.check.planting import BACK, BLS, ENGINE, TEXT, bad, edit, parameter
from tests.gateway_ops.repository.stock import UPSTREAM, filled_by_hand

VERSIONS = (*OLDER, *UPSTREAM)
pytestmark = pytest.mark.usefixtures("stock_facts")
RECENT = "With dynamic_batching Triton 25.07 and newer can deliver streamed pieces out of order."


def fill(folder: Path, version: str, **more: str) -> Path:
    """Write a stock repository with every value filled in as its README and the notes on chat say."""
    batch = {"triton_max_batch_size": "16", "decoupled_mode": "true", "logits_datatype": "TYPE_FP32"}
    text = {**batch, "tokenizer_dir": "/data/m", "add_special_tokens": "false", "skip_special_tokens": "true"}
    engine = {
        **batch, "triton_backend": "tensorrtllm", "engine_dir": "/engines/x",
        "batching_strategy": "inflight_fused_batching", "encoder_input_features_data_type": "TYPE_FP16",
        "prompt_embedding_table_data_type": "TYPE_FP16", "exclude_input_in_output": "True",
        "normalize_log_probs": "False", **more,
    }  # fmt: skip
    values = {"ensemble": batch, "preprocessing": text, "postprocessing": text, "tensorrt_llm": engine}
    values["tensorrt_llm_bls"] = {**batch, "bls_instance_count": "16", "accumulate_tokens": "true"}
    values["tensorrt_llm_bls"]["tensorrt_llm_model_name"] = "tensorrt_llm"
    for name, config in filled_by_hand(version, values).items():
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "1" / "model.py").write_text("class TritonPythonModel: ...\n")
        (folder / name / "config.pbtxt").write_text(to_text(config))
    return folder


def said(folder: Path) -> list[Finding]:
    """What is bad, but for parameters that stay at their defaults."""
    return [found for found in bad(folder) if not found.what.startswith("Optional template variables")]


@pytest.mark.parametrize("version", VERSIONS)
def test_nothing_is_wrong_with_one_that_is_filled_in_with_care(tmp_path: Path, version: str) -> None:
    found = [finding.what for finding in said(fill(tmp_path, version))]
    assert found == ([RECENT] if version == "1.2.1" else [])


@pytest.mark.parametrize(("version", "what"), [("0.19.0", RECENT), ("1.2.1", "path: ensemble, streamed")])
def test_what_a_deployment_may_never_meet_is_information(tmp_path: Path, version: str, what: str) -> None:
    """An order that newer servers lose, and the text path, which the gateway takes where it must."""
    found = [finding for finding in check_repository(fill(tmp_path, version)) if what in finding.what]
    assert [finding.severity for finding in found] == [Severity.INFO]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("file", "old", "new", "what"),
    [
        (ENGINE, r'(name: "input_lengths" data_type: )TYPE_INT32', r"\1TYPE_INT64", "'input_lengths' is INT64"),
        (BLS, r'name: "max_tokens"', 'name: "max_token"', "'max_token' is not one of tensorrt_llm_bls's"),
        (TEXT, r'(name: "QUERY" data_type: )TYPE_STRING', r"\1TYPE_UINT8", "'QUERY' is UINT8"),
        (BACK, r'name: "OUTPUT"', 'name: "OUTPUTS"', "takes the output 'OUTPUT' of postprocessing"),
    ],
)
def test_mistakes_in_any_version(tmp_path: Path, version: str, file: str, old: str, new: str, what: str) -> None:
    repo = fill(tmp_path, version)
    edit(repo / file, old, new)
    assert [finding for finding in said(repo) if what in finding.what and finding.severity is Severity.ERROR]


def test_the_python_variant_of_the_engine(tmp_path: Path) -> None:
    """Its tokenizer is for guided decoding alone, and nobody need fill it in; its engine is what it runs."""
    repo = fill(tmp_path / "good", "0.19.0", triton_backend="python")
    assert said(repo) == []
    repo = fill(tmp_path / "bad", "0.19.0", triton_backend="python", engine_dir="${engine_dir}")
    (found,) = said(repo)
    assert (found.severity, found.what) == (Severity.ERROR, "${engine_dir} is an unfilled template variable.")


def second_engine(repo: Path, name: str, gpus: str) -> None:
    shutil.copytree(repo / "tensorrt_llm", repo / name)
    edit(repo / name / "config.pbtxt", 'name: "tensorrt_llm"', f'name: "{name}"')
    edit(repo / name / "config.pbtxt", r'(key: "gpu_device_ids" value { string_value: )"[^"]*"', rf'\1"{gpus}"')


def test_copies_of_an_engine_on_gpus_of_their_own(tmp_path: Path) -> None:
    """As upstream's page on several instances has it, in orchestrator mode."""
    repo = fill(tmp_path, "0.19.0", gpu_device_ids="0,1", kv_cache_free_gpu_mem_fraction="0.4")
    second_engine(repo, "tensorrt_llm_2", "2,3")
    assert said(repo) == []
    edit(repo / "tensorrt_llm_2" / "config.pbtxt", '"2,3"', '"1,2"')
    (found,) = said(repo)
    assert found.what == "tensorrt_llm_2 and tensorrt_llm load the same engine, /engines/x."


def test_the_model_of_disaggregated_serving_has_no_settings_of_an_engine(tmp_path: Path) -> None:
    """It has an engine's tensors, but calls engines, which echo as they are set; of their log-probs it can say so."""
    repo = fill(tmp_path, "0.16.0", gpu_device_ids="0")
    second_engine(repo, "generation", "1")
    caller = shutil.copytree(repo / "tensorrt_llm", repo / "disaggregated_serving_bls") / "config.pbtxt"
    lines = [line for line in caller.read_text().splitlines() if not line.startswith("parameters")]
    caller.write_text(
        "\n".join(lines).replace("tensorrtllm", "python").replace('"tensorrt_llm"', f'"{caller.parent.name}"')
    )
    with caller.open("a") as file:
        for key, model in (("context_model_name", "tensorrt_llm"), ("generation_model_name", "generation")):
            file.write(f'\nparameters {{ key: "{key}" value {{ string_value: "{model}" }} }}\n')
    (found,) = said(repo)
    assert found.what.startswith("log-probs are rejected")
    assert "normalize_log_probs to false" in found.fix
    with caller.open("a") as file:
        file.write('\nparameters { key: "normalize_log_probs" value { string_value: "false" } }\n')
    assert said(repo) == []
    edit(caller, '"generation"', '"generator"')
    (found,) = said(repo)
    assert found.what == "generation_model_name is 'generator', which is not in this repository."
    assert "did you mean 'generation'?" in found.fix


def test_a_name_of_hugging_face_is_a_tokenizer_to_upstreams_models(tmp_path: Path) -> None:
    repo = fill(tmp_path, "0.19.0")
    for file in (TEXT, BACK):
        edit(repo / file, '"/data/m"', '"meta-llama/Llama-3.1-8B"')
    assert said(repo) == []
    told = [found.severity for found in check_repository(repo) if "is downloaded from Hugging Face" in found.what]
    assert told == [Severity.INFO] * 2
    edit(repo / TEXT, '"meta-llama/Llama-3.1-8B"', '"../models/llama"')
    edit(repo / BACK, '"meta-llama/Llama-3.1-8B"', '"../models/llama"')
    assert {finding.what for finding in said(repo)} == {
        "tokenizer_dir '../models/llama' is relative to Triton's working directory."
    }


def test_tokenizers_that_are_not_where_they_should_be(tmp_path: Path) -> None:
    repo = fill(tmp_path / "repo", "0.19.0")
    folder = tmp_path / "model"
    folder.mkdir()
    for file in (TEXT, BACK):
        edit(repo / file, '"/data/m"', f'"{folder}"')
    assert [finding.what for finding in said(repo)] == [f"{folder} holds no tokenizer.json or another tokenizer."] * 2
    (folder / "tokenizer.model").touch()
    assert said(repo) == []
    for file in (TEXT, BACK):
        edit(repo / file, f'"{folder}"', f'"{folder}/tokenizer.model"')
    assert {finding.what for finding in said(repo)} == {f"tokenizer_dir '{folder}/tokenizer.model' is a file."}


def test_an_unknown_library_of_guides(tmp_path: Path) -> None:
    repo = fill(tmp_path, "1.2.1", guided_decoding_backend="llguidance", xgrammar_tokenizer_info_path="/data/info.json")
    assert [found.what for found in said(repo) if found.severity is Severity.ERROR] == [
        "guided_decoding_backend is 'llguidance'; the C++ backend supports only xgrammar, and does not load."
    ]


@pytest.mark.parametrize("version", ["0.12.0", "0.16.0", "0.19.0", "1.2.1"])
def test_a_stock_repository_by_the_readme_is_no_error(tmp_path: Path, version: str) -> None:
    """BLS neither accumulates nor streams, special tokens are added: it is served; what is lost of answers is said."""
    repo = fill(tmp_path, version, normalize_log_probs="${normalize_log_probs}")
    edit(repo / TEXT, r'("add_special_tokens" value \{ string_value: )"false"', r'\1"${add_special_tokens}"')
    edit(repo / BLS, *parameter("accumulate_tokens", "False"))
    for file in (BLS, ENGINE):
        edit(repo / file, r"model_transaction_policy \{[^}]*\}", "model_transaction_policy { }")
    found = said(repo)
    assert [finding for finding in found if finding.severity is Severity.ERROR] == []
    assert {re.split("[:(]", finding.what)[0] for finding in found} == {
        "a streamed answer is one event at the end",
        "log-probs are rejected with temperature 0, top_k, top_p or min_p",
        *([RECENT] if version == "1.2.1" else []),
    }


def test_a_bls_model_that_does_not_accumulate_is_told_to(tmp_path: Path) -> None:
    repo = fill(tmp_path, "1.2.1")
    edit(repo / BLS, *parameter("accumulate_tokens", "false"))
    (found,) = (each for each in said(repo) if each.what != RECENT)
    assert (found.severity, found.fix) == (Severity.WARNING, "Set accumulate_tokens to true.")
    assert found.what.startswith("streamed answers are rejected: 'tensorrt_llm_bls' decodes each response by itself")


@pytest.mark.parametrize(("tokenizer", "named"), [("", True), ("/data/m", False)])
def test_guides_of_the_python_variant_need_a_tokenizer(tmp_path: Path, tokenizer: str, named: bool) -> None:
    variant = {"triton_backend": "python", "guided_decoding_backend": "xgrammar"}
    found = said(fill(tmp_path, "0.19.0", **variant, tokenizer_dir=tokenizer or "${tokenizer_dir}"))
    assert [found.fix for found in found] == ["Set tokenizer_dir to the model's folder."] * named
