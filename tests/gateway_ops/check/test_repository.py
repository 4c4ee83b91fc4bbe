"""Mistakes planted into model repositories, each named by the review with its fix."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway_ops.check.findings import Severity
from gateway_ops.check.repository import check_repository
from gateway_ops.check.repository.version_folders import OWN_GENERIC_MODULES, OWN_MODULES
from tests.gateway_ops.check.configured_triton import agree
from tests.gateway_ops.check.planted import PLANTED
from tests.gateway_ops.check.planting import BLS, ENGINE, FIRST, TEXT, added, bad, edit, parameter


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_mistake_is_named_with_its_fix(name: str, repo: Path) -> None:
    (file, pattern, replacement), (severity, what, fix) = PLANTED[name]
    edit(repo / file, pattern, replacement)
    found = [finding for finding in check_repository(repo) if what in finding.what]
    assert [finding.severity.value for finding in found] == [severity], check_repository(repo)
    assert fix in found[0].what + found[0].fix
    path, _, line = found[0].where.rpartition(":")
    assert Path(path).parent.parent == repo
    assert int(line) >= 1
    agree(repo)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "the file is empty."),
        ("# nothing but this\n", "the file is empty."),
        ("input { data_type: 99999999999 }", "Value out of range: 99999999999."),
    ],
)
def test_a_file_that_says_nothing_is_the_only_finding(repo: Path, text: str, why: str) -> None:
    (repo / ENGINE).write_text(text)
    (found,) = check_repository(repo)
    assert (found.severity, found.what) == (Severity.ERROR, f"It is not a model configuration: {why}")


def test_a_step_that_is_gone_is_the_only_finding(repo: Path) -> None:
    shutil.rmtree(repo / "preprocessing")
    shutil.rmtree(repo / "tensorrt_llm_bls")
    (found,) = check_repository(repo)
    what = "A step runs the model 'preprocessing', which is not in this repository."
    assert (found.what, found.fix) == (what, "Add it.")


def test_beams_do_not_hide_that_a_model_is_not_decoupled(repo: Path) -> None:
    edit(repo / ENGINE, *parameter("max_beam_width", "4"))
    edit(repo / ENGINE, FIRST, added("decoding_mode", "beam_search"))
    edit(repo / ENGINE, r"model_transaction_policy \{ decoupled: true \}", "model_transaction_policy { }")
    said = {(found.severity, found.what.partition(":")[0]) for found in bad(repo)}
    assert (Severity.WARNING, "a streamed answer is one event at the end") in said


NO_CLASS = "It has no class TritonPythonModel, which the Python backend needs."
TOO_DEEP = "Python cannot read it: it is nested too deeply."


@pytest.mark.parametrize(
    ("file", "text", "line", "what"),
    [
        ("text_to_tokens.py", "def f():\n    return (\n", 2, "Python cannot read it: '(' was never closed."),
        ("text_to_tokens.py", f"x={'-' * 100_000}1\n", 1, TOO_DEEP),
        ("text_to_tokens.py", f"x={'1+' * 100_000}1\n", 1, TOO_DEEP),
        ("model.py", "", 1, NO_CLASS),
        ("model.py", "class Model:\n    pass\n", 1, NO_CLASS),
    ],
    ids=["not closed", "negated without end", "added without end", "empty", "another class"],
)
def test_python_that_the_backend_cannot_run(repo: Path, file: str, text: str, line: int, what: str) -> None:
    path = repo / "preprocessing" / "1" / file
    path.write_text(text)
    (found,) = bad(repo)
    assert (found.severity, found.where, found.what) == (Severity.ERROR, f"{path}:{line}", what)


def test_beams_of_the_llm_api_are_for_beam_search_alone(copied: Callable[[str], Path]) -> None:
    repo = copied("llmapi-tp4")
    edit(repo / ENGINE, *parameter("max_beam_width", "4"))
    (found,) = check_repository(repo)
    assert (found.severity, found.fix) == (Severity.INFO, "Use another model for chat.")
    assert found.what == "It serves beam search only: requests without use_beam_search are rejected."


@pytest.mark.parametrize(
    "text",
    [
        "from text_to_tokens import TextToTokens as TritonPythonModel\n",
        "from text_to_tokens import *\n",
        "class Base: pass\nTritonPythonModel = Base\n",
    ],
)
def test_a_class_that_comes_from_elsewhere(repo: Path, text: str) -> None:
    (repo / "preprocessing" / "1" / "model.py").write_text(text)
    assert bad(repo) == []


@pytest.mark.parametrize(
    ("gone", "importer", "module"),
    [
        ("preprocessing/1/text_to_tokens.py", "preprocessing/1/model.py", "text_to_tokens"),
        ("tensorrt_llm_bls/1/speculation.py", "tensorrt_llm_bls/1/model.py", "speculation"),
        ("tensorrt_llm/1/cpu_double/lora.py", "tensorrt_llm/1/cpu_double/reference_engine.py", "cpu_double.lora"),
    ],
)
def test_a_helper_that_is_gone(copied: Callable[[str], Path], gone: str, importer: str, module: str) -> None:
    repo = copied("embedded")
    (repo / gone).unlink()
    found = [finding for finding in bad(repo) if finding.what == f"It imports {module}, which is missing."]
    assert str(repo / importer) in {finding.where.rpartition(":")[0] for finding in found}
    assert {finding.severity for finding in found} == {Severity.ERROR}


def test_an_adapter_that_is_gone(copied: Callable[[str], Path]) -> None:
    repo = copied("llmapi-tp4")
    (repo / "tensorrt_llm" / "1" / "engines" / "llmapi" / "llmapi_adapter.py").unlink()
    (found,) = bad(repo)
    assert found.what == "1/ has no llmapi_adapter.py, which engine llmapi runs."


def test_imports_that_nobody_can_judge(repo: Path) -> None:
    """Modules may be installed where Triton runs, and files may lie in the folder that nothing imports."""
    version = repo / "preprocessing" / "1"
    (version / "own").mkdir()
    (version / "own" / "__init__.py").touch()
    (version / "scripts").mkdir()
    (version / "scripts" / "try.py").write_text("from .gone import x\n")
    with (version / "text_to_tokens.py").open("a") as file:
        file.write("import wire, adapter, some_package.part\nfrom . import text_to_tokens\nfrom .own import anything\n")
        file.write("try:\n    from .fast import x\nexcept ImportError:\n    pass\n")
    assert bad(repo) == []
    with (version / "text_to_tokens.py").open("a") as file:
        file.write("from .own.more import x\nimport own.other\nfrom . import gone\n")
    assert [finding.what for finding in bad(repo)] == [
        f"It imports {name}, which is missing." for name in (".own.more", "own.other", ".gone")
    ]


def test_the_projects_modules_are_known_by_name(repository: Path) -> None:
    there = {
        path.stem
        for path in repository.glob("*/1/*")
        if path.name != "model.py" and not path.name.startswith((".", "_")) and (path.is_dir() or path.suffix == ".py")
    }
    assert there == OWN_MODULES | OWN_GENERIC_MODULES


@pytest.mark.parametrize(
    ("file", "tensor", "what"),
    [
        (BLS, "num_draft_tokens", "the input num_draft_tokens is missing: requests cannot use drafts"),
        (ENGINE, "draft_input_ids", "tensorrt_llm has no input draft_input_ids: it does not accept drafts"),
    ],
)
def test_a_draft_model_that_nothing_asks(copied: Callable[[str], Path], file: str, tensor: str, what: str) -> None:
    repo = copied("draft-target")
    edit(repo / file, rf'input \{{ name: "{tensor}"[^\n]*\n', "")
    (found,) = bad(repo)
    assert found.severity is Severity.WARNING
    assert what in found.what
    assert tensor in found.fix


def test_a_draft_that_is_its_target_and_an_engine_that_is_none(copied: Callable[[str], Path]) -> None:
    repo = copied("draft-target")
    edit(repo / "tensorrt_llm_draft" / "config.pbtxt", *parameter("gpt_model_path", "/engines/llama-3.1-8b"))
    (found,) = bad(repo)
    assert "load the same engine, /engines/llama-3.1-8b" in found.what
    repo = copied("llmapi-tp4")
    edit(repo / "tensorrt_llm" / "config.pbtxt", *parameter("engine", "tensort"))
    (found,) = bad(repo)
    assert (found.what, found.fix) == (
        "engine is 'tensort', which does not exist.",
        "Set llmapi, transformers or reference.",
    )


def test_missing_files(repo: Path) -> None:
    shutil.rmtree(repo / "ensemble" / "1")
    (repo / "preprocessing" / "1" / "model.py").unlink()
    (repo / "postprocessing" / "config.pbtxt").unlink()
    (repo / "tensorrt_llm" / "latest").mkdir()
    found = {(finding.where, finding.what): finding for finding in bad(repo)}
    missing = found[str(repo / "ensemble"), "A version folder such as 1/ is missing."]
    assert f"mkdir {repo / 'ensemble' / '1'}" in missing.fix
    assert (str(repo / "preprocessing"), "1/ has no model.py, which the Python backend runs.") in found
    assert (str(repo / "postprocessing"), "The folder has no config.pbtxt.") in found
    assert (str(repo / "tensorrt_llm"), "The folder latest/ is not a version: Triton ignores it.") in found


@pytest.mark.parametrize(
    ("name", "what", "fix"),
    [
        ("01", "A version folder such as 1/ is missing.", "Rename 01/ to 1/"),
        ("v1", "A version folder such as 1/ is missing.", "mkdir"),
        ("\u00b2", "A version folder such as 1/ is missing.", "mkdir"),  # a superscript, which is a digit to Python
        ("\u0661", "A version folder such as 1/ is missing.", "mkdir"),  # a digit of another script
        ("1abc", "A version folder such as 1/ is missing.", "Rename 1abc/ to 1/"),
        ("9" * 23, f"The folder {'9' * 23}/ is a number of more than 64 bits: Triton exits at startup.", "1, 2, 3"),
    ],
)
def test_a_version_folder_that_triton_does_not_read(repo: Path, name: str, what: str, fix: str) -> None:
    (repo / "preprocessing" / "1").rename(repo / "preprocessing" / name)
    (found,) = [finding for finding in bad(repo) if finding.where == str(repo / "preprocessing")]
    assert (found.severity, found.what) == (Severity.ERROR, what)
    assert fix in found.fix


def test_any_number_of_64_bits_is_a_version_and_other_folders_beside_it_are_not(repo: Path) -> None:
    (repo / "postprocessing" / "1").rename(repo / "postprocessing" / "9223372036854775807")
    (repo / "ensemble" / "1").rename(repo / "ensemble" / "0")
    assert bad(repo) == []
    for name in ("warmup", "configs", "01", "1abc", "2abc"):
        (repo / "preprocessing" / name).mkdir()
    assert {(found.severity, found.what) for found in bad(repo)} == {
        (Severity.WARNING, "The folder 01/ is not a version but a number with leading zeros: Triton ignores it."),
        (Severity.WARNING, "The folder 1abc/ is not a version, but Triton reads it as 1, and looks for that folder."),
        (Severity.ERROR, "The folder 2abc/ is not a version, but Triton reads it as 2, and looks for that folder."),
    }  # fmt: skip


def test_engines_that_take_each_others_gpus(copied: Callable[[str], Path]) -> None:
    repo = copied("two-models")
    edit(repo / "qwen_tensorrt_llm" / "config.pbtxt", *parameter("gpu_device_ids", "1;3"))
    (found,) = bad(repo)
    assert "GPU 1 is given to qwen_tensorrt_llm and to llama_tensorrt_llm" in found.what
    assert (found.severity, "kv_cache_free_gpu_mem_fraction values" in found.what) == (Severity.WARNING, True)
    bounded = added("max_tokens_in_paged_kv_cache", "40960")
    edit(repo / "qwen_tensorrt_llm" / "config.pbtxt", FIRST, bounded)
    assert bad(repo) == []
    edit(repo / "qwen_tensorrt_llm" / "config.pbtxt", *parameter("gpu_device_ids", "2;3;4"))
    (found,) = bad(repo)
    assert found.what == "gpu_device_ids names 3 instances, and the instance group has 2."
    edit(repo / "qwen_tensorrt_llm" / "config.pbtxt", r'parameters \{ key: "gpu_device_ids"[^\n]*\n', "")
    assert "so it uses all GPUs" in bad(repo)[0].what


def test_an_engine_folder_must_hold_an_engine_where_it_can_be_seen(repo: Path, tmp_path: Path) -> None:
    assert check_repository(repo) == []
    for folder, what, severity in (
        (tmp_path / "engine", "does not contain rank0.engine", Severity.ERROR),
        (tmp_path / "engines" / "lama3", "does not exist on this machine.", Severity.WARNING),
        (Path("/of/another/machine/llama3"), "does not exist on this machine.", Severity.INFO),
    ):
        (tmp_path / "engine").mkdir(exist_ok=True)
        edit(repo / ENGINE, *parameter("gpt_model_path", str(folder)))
        (found,) = check_repository(repo)
        assert (found.severity, found.what.startswith(str(folder)), what in found.what) == (severity, True, True)


@pytest.mark.parametrize("value", ["true", None])
def test_special_tokens_of_the_text_step_are_the_gateways_business(repo: Path, value: str | None) -> None:
    """It tokenizes itself, or leaves the BOS to that step."""
    pattern, written = parameter("add_special_tokens", "true")
    if value is None:
        pattern, written = r'parameters \{ key: "add_special_tokens"[^\n]*\n', ""
    edit(repo / TEXT, pattern, written)
    assert bad(repo) == []


def test_a_folder_without_models(tmp_path: Path) -> None:
    (found,) = check_repository(tmp_path)
    assert found.what == "No folder in the repository has a config.pbtxt."


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


def test_a_python_engine_is_known_by_most_of_its_tensors(copied: Callable[[str], Path]) -> None:
    repo = copied("llmapi-tp4")
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
