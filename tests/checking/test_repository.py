"""Mistakes planted into model repositories, each named by the review with its fix."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.checking.findings import Finding, Severity
from gateway.checking.repository import check_repository
from gateway.checking.repository_python import OWN_GENERIC_MODULES, OWN_MODULES
from gateway.config.document import read_document
from gateway.config.validation import validate_deployments
from gateway.repository.rendering import render, write
from gateway.repository.text import to_text
from tests.repository.stock import filled_by_hand

EXAMPLES = Path(__file__).parents[2] / "examples" / "deployments"


@pytest.fixture(scope="session")
def rendered(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Callable[[str], Path]:
    """A rendered example, made once."""
    made: dict[str, Path] = {}

    def get(name: str) -> Path:
        if name not in made:
            made[name] = tmp_path_factory.mktemp("rendered") / "repo"
            deployments, _ = validate_deployments(read_document(EXAMPLES / f"{name}.yaml"))
            write(render(deployments, repository), made[name], replace=False)
        return made[name]

    return get


@pytest.fixture
def repo(rendered: Callable[[str], Path], tmp_path: Path) -> Path:
    """A copy of a repository without mistakes, for TensorRT-LLM's C++ backend."""
    return shutil.copytree(rendered("llama3-8b-awq"), tmp_path / "repo")


def edit(file: Path, pattern: str, replacement: str) -> None:
    text, count = re.subn(pattern, replacement, file.read_text(), count=1)
    assert count == 1, pattern
    file.write_text(text)


def bad(folder: Path) -> list[Finding]:
    return [finding for finding in check_repository(folder) if finding.severity is not Severity.INFO]


def parameter(name: str, value: str) -> tuple[str, str]:
    """Pattern and replacement for a parameter's value."""
    return rf'(key: "{name}" value {{ string_value: )"[^"]*"', rf'\1"{value}"'


def added(name: str, value: str) -> str:
    """Replacement of ``FIRST`` that puts a parameter in front."""
    return rf'parameters {{ key: "{name}" value {{ string_value: "{value}" }} }}\n\1'


FIRST = r"(parameters \{ key: \"gpt_model_type\")"
ENGINE, ENSEMBLE, TEXT, BACK, BLS = (
    f"{name}/config.pbtxt"
    for name in ("tensorrt_llm", "ensemble", "preprocessing", "postprocessing", "tensorrt_llm_bls")
)
# file, pattern, replacement, severity, words of the finding, words of the fix
PLANTED = {
    "unfilled mandatory value": (
        (ENGINE, *parameter("gpt_model_path", "${engine_dir}")),
        ("error", "${engine_dir} is not filled in", "fill_template.py engine_dir:VALUE"),
    ),
    "unfilled number": (
        (ENGINE, r"max_batch_size: 16", "max_batch_size: ${triton_max_batch_size}"),
        ("error", "so the file does not parse", "fill_template.py triton_max_batch_size:VALUE"),
    ),
    "unfilled optional value": (
        (ENGINE, *parameter("batch_scheduler_policy", "${batch_scheduler_policy}")),
        ("warning", "Optional values are not filled in", "remove the other parameters"),
    ),
    "environment variable in the C++ backend": (
        (ENGINE, *parameter("gpt_model_path", "${MODEL_DIR}")),
        ("error", "the C++ backend reads nothing from the environment", "Write the value"),
    ),
    "not a configuration": (
        (TEXT, r"max_batch_size: 16", "max_batch_size 16"),
        ("error", "It is no model configuration", "mend the line"),
    ),
    "name of another folder": (
        (TEXT, r'name: "preprocessing"', 'name: "tokenizer"'),
        ("error", "The name is 'tokenizer', but the folder is 'preprocessing'", "Name both 'preprocessing'"),
    ),
    "step of a missing model": (
        (ENSEMBLE, r'model_name: "postprocessing"', 'model_name: "postprocesing"'),
        ("error", "A step runs the model 'postprocesing', which is not in", "Did you mean 'postprocessing'?"),
    ),
    "step sends an input that the model does not have": (
        (ENSEMBLE, r'input_map \{ key: "runtime_top_k"', 'input_map { key: "top_k"'),
        ("error", "A step sends 'top_k' to tensorrt_llm, which has no such input", "Did you mean"),
    ),
    "step takes an output that the model does not have": (
        (ENSEMBLE, r'output_map \{ key: "OUTPUT"', 'output_map { key: "TEXT"'),
        ("error", "A step takes the output 'TEXT' of postprocessing", "Remove the mapping"),
    ),
    "tensor that nobody makes": (
        (ENSEMBLE, r'(key: "TOKENS_BATCH" value: )"output_ids"', r'\1"answer"'),
        ("error", "postprocessing needs 'answer' for its input 'TOKENS_BATCH', and nothing makes it", "Map an output"),
    ),
    "required input that is not sent": (
        (ENSEMBLE, r'input_map \{ key: "SEQUENCE_LENGTH"[^\n]*\n', ""),
        ("error", "postprocessing requires 'SEQUENCE_LENGTH'", "Add input_map"),
    ),
    "type differs between steps": (
        (BACK, r'(name: "TOKENS_BATCH" data_type: )TYPE_INT32', r"\1TYPE_INT64"),
        ("error", "'output_ids' is INT32 from tensorrt_llm, but INT64 for postprocessing", "the same data_type"),
    ),
    "logits type differs from the engine's": (
        (ENSEMBLE, r'(name: "context_logits" data_type: )TYPE_FP32', r"\1TYPE_FP16"),
        ("error", "'context_logits' is FP32 from tensorrt_llm, but FP16 for the answer", "the same data_type"),
    ),
    "dims differ between steps": (
        (BACK, r'(name: "TOKENS_BATCH" data_type: TYPE_INT32) dims: -1 dims: -1', r"\1 dims: -1"),
        ("error", "'output_ids' has dims [-1, -1] from tensorrt_llm, but [-1]", "the same dims"),
    ),
    "batch size of a step too small": (
        (BACK, r"max_batch_size: 16", "max_batch_size: 8"),
        ("error", "max_batch_size is 16, but 8 in postprocessing", "at least the ensemble's"),
    ),
    "no way to cancel": (
        (ENGINE, r'input \{ name: "stop"[^\n]*\n', ""),
        ("warning", "It has no input stop: what a client of the ensemble breaks off", 'Declare input { name: "stop"'),
    ),
    "not decoupled": (
        (ENGINE, r"model_transaction_policy \{ decoupled: true \}", "model_transaction_policy { }"),
        ("error", "not decoupled, so no answer can be streamed", "decoupled: true"),
    ),
    "double BOS": (
        (TEXT, *parameter("add_special_tokens", "true")),
        ("error", "a double BOS changes the answer", "add_special_tokens to false"),
    ),
    "double BOS by leaving it out": (
        (TEXT, r'parameters \{ key: "add_special_tokens"[^\n]*\n', ""),
        ("error", "a double BOS changes the answer", "add_special_tokens to false"),
    ),
    "normalised log-probs": (
        (ENGINE, *parameter("normalize_log_probs", "true")),
        ("warning", "Log-probs are normalised", "normalize_log_probs to false"),
    ),
    "prompt echo by leaving it out": (
        (ENGINE, r'parameters \{ key: "exclude_input_in_output"[^\n]*\n', ""),
        ("warning", "begin with the prompt", "exclude_input_in_output to true"),
    ),
    "prompt echo on purpose": (
        (ENGINE, *parameter("exclude_input_in_output", "false")),
        ("info", "begin with the prompt", "exclude_input_in_output to true"),
    ),
    "mode that answers with nothing": (
        (ENGINE, FIRST, added("decoding_mode", "top_k")),
        ("error", "decoding_mode is top_k: requests that carry the other parameter come back empty", "Remove it"),
    ),
    "beams beside streaming": (
        (ENGINE, *parameter("max_beam_width", "4")),
        ("warning", "every request is decoded by beams", "with decoding_mode beam_search"),
    ),
    "several detokenizers": (
        (BACK, r"instance_group \{ count: 1", "instance_group { count: 4"),
        ("error", "4 instances let streamed pieces overtake each other", "count: 1"),
    ),
    "control tokens as text": (
        (BACK, *parameter("skip_special_tokens", "false")),
        ("warning", "Control tokens such as <|eot_id|> come out as text", "skip_special_tokens to true"),
    ),
    "two tokenizers": (
        (BACK, *parameter("tokenizer_dir", "/data/other")),
        ("error", "tokenizer_dir is /data/other, but /data/Meta-Llama-3-8B-Instruct in", "the same folder in both"),
    ),
    "no batching strategy": (
        (ENGINE, r'parameters \{ key: "gpt_model_type"[^\n]*\n', ""),
        ("error", "No gpt_model_type", "inflight_fused_batching"),
    ),
    "unknown batching strategy": (
        (ENGINE, *parameter("gpt_model_type", "inflight")),
        ("error", "gpt_model_type is 'inflight', which the backend does not know", "inflight_fused_batching"),
    ),
    "share of memory above 1": (
        (ENGINE, *parameter("kv_cache_free_gpu_mem_fraction", "90")),
        ("error", "kv_cache_free_gpu_mem_fraction is '90'", "at most 1"),
    ),
    "relative engine folder": (
        (ENGINE, *parameter("gpt_model_path", "llama3-engine")),
        ("error", "relative to wherever Triton is started", "an absolute path"),
    ),
    "guided decoding without tokenizer info": (
        (ENGINE, FIRST, added("guided_decoding_backend", "xgrammar")),
        ("error", "not xgrammar_tokenizer_info_path", "generate_xgrammar_tokenizer_info.py"),
    ),
    "caller of a missing engine": (
        (BLS, *parameter("tensorrt_llm_model_name", "tensorrt_lm")),
        ("error", "tensorrt_llm_model_name is 'tensorrt_lm', which is not in this repository", "Name a model"),
    ),
    "one request at a time": (
        (BLS, r'parameters \{ key: "max_concurrent_requests"[^\n]*\n', ""),
        ("warning", "1 instances serve 1 requests at a time", "count: 16"),
    ),
    "no number": (
        (ENGINE, *parameter("max_tokens_in_paged_kv_cache", "lots")),
        ("error", "max_tokens_in_paged_kv_cache is 'lots'", "Write a whole number"),
    ),
    "no truth value": (
        (ENGINE, *parameter("enable_kv_cache_reuse", "maybe")),
        ("error", "enable_kv_cache_reuse is 'maybe'", "Write true or false"),
    ),
    "no GPU": (
        (ENGINE, FIRST, added("gpu_device_ids", "zero")),
        ("error", "gpu_device_ids is 'zero'", "as 0,1"),
    ),
    "no tree": (
        (ENGINE, FIRST, added("medusa_choices", "{0")),
        ("error", "medusa_choices is '{0'", "{0}, {0, 0}, {1}"),
    ),
    "empty engine folder": (
        (ENGINE, *parameter("gpt_model_path", "")),
        ("error", "gpt_model_path is empty", "the folder of the engine"),
    ),
    "empty tokenizer folder": (
        (TEXT, *parameter("tokenizer_dir", "")),
        ("error", "tokenizer_dir is empty", "the model's folder"),
    ),
    "unknown platform": (
        (ENSEMBLE, r'platform: "ensemble"', 'platform: "ensembel"'),
        ("error", "The platform is 'ensembel'", 'platform: "ensemble"'),
    ),
    "two instances of an engine on the same GPUs": (
        (ENGINE, r"instance_group \{ count: 1", "instance_group { count: 2"),
        ("error", "2 instances of the engine are loaded onto the same GPUs", "gpu_device_ids with a group for each"),
    ),
    "an engine for each GPU": (
        (ENGINE, r"kind: KIND_CPU", "kind: KIND_GPU"),
        ("error", "every one loads the engine", "Write KIND_CPU"),
    ),
    "no backend": (
        (TEXT, r'backend: "python"', ""),
        ("error", "It names neither a backend nor a platform", '"python" for the other models'),
    ),
    "negative batch size": (
        (BLS, r"max_batch_size: 16", "max_batch_size: -1"),
        ("error", "max_batch_size is -1; Triton refuses to load it", "Write 1 or more"),
    ),
    "unknown backend": (
        (ENGINE, r'backend: "tensorrtllm"', 'backend: "tensorrt_llm"'),
        ("error", "There is no backend 'tensorrt_llm' that these models run on", "Did you mean 'tensorrtllm'?"),
    ),
    "misspelt backend": (
        (BACK, r'backend: "python"', 'backend: "pyton"'),
        ("error", "There is no backend 'pyton' that these models run on", "Did you mean 'python'?"),
    ),
    "backend of other models": (
        (BACK, r'backend: "python"', 'backend: "onnxruntime"'),
        ("warning", "The backend 'onnxruntime' is none that these models run on", '"python" for the other models'),
    ),
    "version that is not there": (
        (TEXT, r"^", "version_policy { specific { versions: 7 } }\n"),
        ("error", "version_policy asks for version 7, and there is only 1/", "name a version that is there"),
    ),
    "one version of two that is not there": (
        (TEXT, r"^", "version_policy { specific { versions: [1, 7] } }\n"),
        ("warning", "version_policy asks for version 7, and there is only 1/", "name a version that is there"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_mistake_is_named_with_its_fix(name: str, repo: Path) -> None:
    (file, pattern, replacement), (severity, what, fix) = PLANTED[name]
    edit(repo / file, pattern, replacement)
    found = [finding for finding in check_repository(repo) if what in finding.what]
    assert [finding.severity.value for finding in found] == [severity], check_repository(repo)
    assert fix in found[0].fix
    path, _, line = found[0].where.rpartition(":")
    assert Path(path).parent.parent == repo
    assert int(line) >= 1


def test_a_file_that_does_not_parse_is_the_only_finding(repo: Path) -> None:
    edit(repo / ENGINE, r"max_batch_size: 16", "max_batch_size 16")
    (found,) = check_repository(repo)
    assert found.what.startswith("It is no model configuration")


def test_a_number_that_no_field_can_hold(repo: Path) -> None:
    edit(repo / ENGINE, "data_type: TYPE_INT32", "data_type: 99999999999")
    (found,) = check_repository(repo)
    assert found.what == "It is no model configuration: Value out of range: 99999999999."


@pytest.mark.parametrize("text", ["", "# nothing but this\n"])
def test_a_file_with_nothing_in_it_is_the_only_finding(repo: Path, text: str) -> None:
    (repo / ENGINE).write_text(text)
    (found,) = check_repository(repo)
    assert (found.severity, found.what) == (
        Severity.ERROR,
        "It is no model configuration: there is nothing in it.",
    )


def test_a_step_that_is_gone_is_the_only_finding(repo: Path) -> None:
    shutil.rmtree(repo / "preprocessing")
    shutil.rmtree(repo / "tensorrt_llm_bls")
    (found,) = check_repository(repo)
    assert found.what == "A step runs the model 'preprocessing', which is not in this repository."
    assert found.fix == "Add it."


def test_beams_do_not_excuse_a_model_that_is_not_decoupled(repo: Path) -> None:
    edit(repo / ENGINE, *parameter("max_beam_width", "4"))
    edit(repo / ENGINE, FIRST, added("decoding_mode", "beam_search"))
    edit(repo / ENGINE, r"model_transaction_policy \{ decoupled: true \}", "model_transaction_policy { }")
    (found,) = bad(repo)
    assert (found.severity, "the gateway does not serve it" in found.what) == (Severity.ERROR, True)


def test_python_that_does_not_parse(repo: Path) -> None:
    file = repo / "preprocessing" / "1" / "text_to_tokens.py"
    file.write_text("def f():\n    return (\n")
    (found,) = bad(repo)
    assert (found.where, found.what) == (f"{file}:2", "Python cannot read it: '(' was never closed.")


@pytest.mark.parametrize("text", ["", "import json\n", "class Model:\n    pass\n"])
def test_a_model_without_its_class(repo: Path, text: str) -> None:
    file = repo / "preprocessing" / "1" / "model.py"
    file.write_text(text)
    (found,) = bad(repo)
    assert (found.severity, found.where) == (Severity.ERROR, f"{file}:1")
    assert found.what == "It has no class TritonPythonModel, which the Python backend makes."


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
        ("postprocessing/1/tokens_to_text.py", "postprocessing/1/model.py", "tokens_to_text"),
        ("tensorrt_llm_bls/1/speculation.py", "tensorrt_llm_bls/1/model.py", "speculation"),
        ("tensorrt_llm/1/wire.py", "tensorrt_llm/1/adapter.py", "wire"),
        ("tensorrt_llm/1/reference/kv_reuse.py", "tensorrt_llm/1/reference/engine.py", "reference.kv_reuse"),
    ],
)
def test_a_helper_that_is_gone(
    rendered: Callable[[str], Path], tmp_path: Path, gone: str, importer: str, module: str
) -> None:
    repo = shutil.copytree(rendered("embedded"), tmp_path / "repo")
    (repo / gone).unlink()
    found = [finding for finding in bad(repo) if finding.what == f"It imports {module}, which is not there."]
    assert str(repo / importer) in {finding.where.rpartition(":")[0] for finding in found}
    assert {finding.severity for finding in found} == {Severity.ERROR}


def test_an_adapter_that_is_gone(rendered: Callable[[str], Path], tmp_path: Path) -> None:
    repo = shutil.copytree(rendered("llmapi-tp4"), tmp_path / "repo")
    (repo / "tensorrt_llm" / "1" / "llmapi_adapter.py").unlink()
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
        f"It imports {name}, which is not there." for name in (".own.more", "own.other", ".gone")
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
        (BLS, "num_draft_tokens", "there is no input num_draft_tokens: no request can ask for drafts"),
        (ENGINE, "draft_input_ids", "tensorrt_llm has no input draft_input_ids: it takes no drafts"),
    ],
)
def test_a_draft_model_that_nothing_asks(
    rendered: Callable[[str], Path], tmp_path: Path, file: str, tensor: str, what: str
) -> None:
    repo = shutil.copytree(rendered("draft-target"), tmp_path / "repo")
    edit(repo / file, f'name: "{tensor}"', f'name: "{tensor}_x"')
    (found,) = bad(repo)
    assert found.severity is Severity.WARNING
    assert what in found.what
    assert tensor in found.fix


@pytest.mark.parametrize(
    ("file", "pattern", "replacement", "name"),
    [
        (TEXT, r"max_batch_size: 16", "max_batch_size: ${triton_max_batch_size}", "triton_max_batch_size"),
        (ENGINE, r'(name: "context_logits" data_type: )\w+', r"\1${logits_datatype}", "logits_datatype"),
        (ENGINE, r"decoupled: true", "decoupled: ${decoupled_mode}", "decoupled_mode"),
    ],
)
def test_what_is_not_filled_in_is_the_only_finding(
    repo: Path, file: str, pattern: str, replacement: str, name: str
) -> None:
    edit(repo / file, pattern, replacement)
    (found,) = check_repository(repo)
    assert found.what == f"${{{name}}} is not filled in, so the file does not parse."


def test_a_draft_that_is_its_target_and_an_engine_that_is_none(rendered: Callable[[str], Path], tmp_path: Path) -> None:
    repo = shutil.copytree(rendered("draft-target"), tmp_path / "drafts")
    edit(repo / "tensorrt_llm_draft" / "config.pbtxt", *parameter("gpt_model_path", "/engines/llama-3.1-8b"))
    (found,) = bad(repo)
    assert "load the same engine, /engines/llama-3.1-8b" in found.what
    repo = shutil.copytree(rendered("llmapi-tp4"), tmp_path / "llmapi")
    edit(repo / "tensorrt_llm" / "config.pbtxt", *parameter("engine", "tensort"))
    (found,) = bad(repo)
    assert (found.what, found.fix) == (
        "engine is 'tensort', which this project does not have.",
        "Set llmapi, transformers or reference.",
    )


def test_the_repository_they_were_planted_in_has_none(repo: Path) -> None:
    assert check_repository(repo) == []


def test_missing_files(repo: Path) -> None:
    shutil.rmtree(repo / "ensemble" / "1")
    (repo / "preprocessing" / "1" / "model.py").unlink()
    (repo / "postprocessing" / "config.pbtxt").unlink()
    (repo / "tensorrt_llm" / "latest").mkdir()
    found = {(finding.where, finding.what): finding for finding in bad(repo)}
    missing = found[str(repo / "ensemble"), "There is no version folder such as 1/."]
    assert f"mkdir {repo / 'ensemble' / '1'}" in missing.fix
    assert (str(repo / "preprocessing"), "1/ has no model.py, which the Python backend runs.") in found
    assert (str(repo / "postprocessing"), "The folder has no config.pbtxt.") in found
    assert (str(repo / "tensorrt_llm"), "The folder latest/ is no version: Triton passes it over.") in found


def test_engines_that_take_each_others_gpus(rendered: Callable[[str], Path], tmp_path: Path) -> None:
    repo = shutil.copytree(rendered("two-models"), tmp_path / "repo")
    edit(repo / "qwen_tensorrt_llm" / "config.pbtxt", *parameter("gpu_device_ids", "1;3"))
    (found,) = bad(repo)
    assert "GPU 1 is given to qwen_tensorrt_llm and to llama_tensorrt_llm" in found.what
    edit(repo / "qwen_tensorrt_llm" / "config.pbtxt", *parameter("gpu_device_ids", "2;3;4"))
    (found,) = bad(repo)
    assert found.what == "gpu_device_ids names 3 instances, and the instance group has 2."
    edit(repo / "qwen_tensorrt_llm" / "config.pbtxt", r'parameters \{ key: "gpu_device_ids"[^\n]*\n', "")
    assert "it takes all GPUs" in bad(repo)[0].what


def test_an_engine_folder_that_is_here_must_hold_an_engine(repo: Path, tmp_path: Path) -> None:
    (tmp_path / "engine").mkdir()
    edit(repo / "tensorrt_llm" / "config.pbtxt", *parameter("gpt_model_path", str(tmp_path / "engine")))
    (found,) = bad(repo)
    assert "holds no rank0.engine" in found.what
    (tmp_path / "engine" / "rank0.engine").touch()
    assert bad(repo) == []


def test_stock_templates_filled_by_hand(tmp_path: Path) -> None:
    """What people have after the README's steps: it loads, and is bad for chat in four ways."""
    batch = {"triton_max_batch_size": "4", "decoupled_mode": "true", "logits_datatype": "TYPE_FP32"}
    text = {**batch, "tokenizer_dir": "/data/m"}
    engine = {
        **batch,
        "triton_backend": "tensorrtllm",
        "engine_dir": "/engines/x",
        "batching_strategy": "inflight_fused_batching",
        "encoder_input_features_data_type": "TYPE_FP16",
        "prompt_embedding_table_data_type": "TYPE_FP16",
    }
    values = {"ensemble": batch, "preprocessing": text, "postprocessing": text, "tensorrt_llm": engine}
    values["tensorrt_llm_bls"] = {**batch, "bls_instance_count": "1"}
    for name, config in filled_by_hand("1.2.1", values).items():
        version = tmp_path / name / "1"
        version.mkdir(parents=True)
        (version / "model.py").write_text("class TritonPythonModel: ...\n")
        (tmp_path / name / "config.pbtxt").write_text(to_text(config))
    found = [finding.what for finding in bad(tmp_path) if not finding.what.startswith("Optional values")]
    assert [what.partition(":")[0] for what in found] == [
        "It adds BOS to every prompt, and chat templates begin with it already",
        "Answers that are not streamed begin with the prompt.",
        "Log-probs are normalised over the sampled candidates",
        "1 instances serve 1 requests at a time",
    ]


def test_upstreams_llm_api_model_without_its_policy(tmp_path: Path) -> None:
    version = tmp_path / "tensorrt_llm" / "1"
    version.mkdir(parents=True)
    (version / "model.py").write_text("class TritonPythonModel: ...\n")
    text = """name: "tensorrt_llm"
backend: "python"
input { name: "text_input" data_type: TYPE_STRING dims: -1 }
input { name: "sampling_param_max_tokens" data_type: TYPE_INT32 dims: 1 optional: true }
output { name: "text_output" data_type: TYPE_STRING dims: -1 }
"""
    file = tmp_path / "tensorrt_llm" / "config.pbtxt"
    file.write_text(text)
    (found,) = bad(tmp_path)
    assert "a streamed request is never answered" in found.what
    file.write_text(text + "model_transaction_policy { decoupled: true }\n")
    assert bad(tmp_path) == []


def test_a_folder_without_models(tmp_path: Path) -> None:
    (found,) = check_repository(tmp_path)
    assert found.what == "No folder in it has a config.pbtxt."
