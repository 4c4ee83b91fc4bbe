"""What the examples render: the tensors of the contract, and what stock templates give, but for the better."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from gateway.checking import Severity
from gateway.checking.repository import check_repository
from gateway.contract import MODELS
from gateway.contract.layout import WIRED
from gateway.repository.configs import configurations
from gateway.repository.contradictions import contradictions
from gateway.repository.difference import differences, settings_of
from gateway.repository.reading import read_repository
from gateway.repository.rendering import RenderError, render, stock_name, write
from tests.repository.conftest import EXAMPLES, load
from tests.repository.stock import UPSTREAM, filled_by_hand

NAMES = (
    "draft-target",
    "embedded",
    "gpt2-medium-tp4",
    "llama3-70b-tp8",
    "llama3-8b-awq",
    "llmapi-tp4",
    "two-models",
)
# The tutorial's own values (TensorRT-LLM 0.9), in today's words.
TUTORIAL = {
    "ensemble": {"triton_max_batch_size": "1", "logits_datatype": "TYPE_FP32"},
    "preprocessing": {
        "tokenizer_dir": "/data/Meta-Llama-3-8B-Instruct",
        "triton_max_batch_size": "1",
        "preprocessing_instance_count": "1",
    },
    "postprocessing": {
        "tokenizer_dir": "/data/Meta-Llama-3-8B-Instruct",
        "triton_max_batch_size": "1",
        "postprocessing_instance_count": "1",
    },
    "tensorrt_llm": {
        "triton_backend": "tensorrtllm",
        "triton_max_batch_size": "1",
        "decoupled_mode": "False",
        "max_beam_width": "1",
        "engine_dir": "/data/llama3-engine",
        "max_tokens_in_paged_kv_cache": "2560",
        "max_attention_window_size": "2560",
        "kv_cache_free_gpu_mem_fraction": "0.5",
        "exclude_input_in_output": "True",
        "enable_kv_cache_reuse": "False",
        "batching_strategy": "inflight_fused_batching",
        "max_queue_delay_microseconds": "0",
        "encoder_input_features_data_type": "TYPE_FP16",
        "prompt_embedding_table_data_type": "TYPE_FP16",
        "logits_datatype": "TYPE_FP32",
    },
    "tensorrt_llm_bls": {
        "triton_max_batch_size": "1",
        "decoupled_mode": "False",
        "bls_instance_count": "1",
        "logits_datatype": "TYPE_FP32",
    },
}


def test_there_are_seven_examples() -> None:
    assert sorted(path.stem for path in EXAMPLES.glob("*.yaml")) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_an_example_renders_the_tensors_of_the_contract(name: str, tmp_path: Path, repository: Path) -> None:
    deployments = load(EXAMPLES / f"{name}.yaml")
    assert list(contradictions(deployments)) == []
    rendering = render(deployments, repository)
    write(rendering, tmp_path / "out", replace=False)
    written = read_repository(tmp_path / "out")
    for deployment in deployments:
        native = deployment.engine == "tensorrt"
        for triton_model in configurations(deployment):
            spec = MODELS[stock_name(triton_model, deployment)]
            text = written[triton_model].file.read_text()
            config = text_format.Parse(text, model_config_pb2.ModelConfig())
            assert config == rendering.configs[triton_model]
            assert "${" not in text or not native
            for tensors, declared in ((spec.inputs, config.input), (spec.outputs, config.output)):
                wanted = {
                    tensor.name: (tensor.datatype.replace("LOGITS", "FP32"), list(tensor.dims))
                    for tensor in tensors
                    if not native or not tensor.extension or tensor.name in WIRED
                }
                kind = model_config_pb2.DataType.Name
                found = {one.name: (kind(one.data_type).removeprefix("TYPE_"), list(one.dims)) for one in declared}
                assert found == wanted


@pytest.mark.parametrize("name", NAMES)
def test_an_example_passes_the_check(name: str, tmp_path: Path, repository: Path) -> None:
    write(render(load(EXAMPLES / f"{name}.yaml"), repository), tmp_path / "out", replace=False)
    found = [finding for finding in check_repository(tmp_path / "out") if finding.severity is not Severity.INFO]
    assert found == []


def test_the_embedded_example_is_the_repository(repository: Path) -> None:
    rendering = render(load(EXAMPLES / "embedded.yaml"), repository)
    theirs = {name: model.config for name, model in read_repository(repository).items()}
    assert [str(found) for found in differences(rendering.configs, theirs)] == []


def test_what_stock_templates_give_differs_only_for_the_better(repository: Path) -> None:
    """The tutorial's flow: whatever differs from its files filled by hand has its reason in docs/deployments.md."""
    overrides = {"triton": {"max_batch_size": 1}, "limits": {"max_batch_size": 1}}
    (deployment,) = load(EXAMPLES / "llama3-8b-awq.yaml")
    changed = {name: getattr(deployment, name).model_copy(update=value) for name, value in overrides.items()}
    cache = {"max_tokens": 2560, "max_attention_window": (2560,)}
    changed["kv_cache"] = deployment.kv_cache.model_copy(update=cache)
    ours = configurations(deployment.model_copy(update=changed))
    found = {
        f"{one.model} {one.setting}": (one.ours, one.theirs)
        for one in differences(ours, filled_by_hand("1.2.1", TUTORIAL))
        if not _is_image(one.setting)
    }
    on, off = "true", "false"
    texts = [("ensemble", name) for name in ("text_input", "max_tokens")]
    texts += [("preprocessing", name) for name in ("QUERY", "REQUEST_OUTPUT_LEN")]
    expected = {f"{model} input {name} optional": (on, off) for model, name in texts}
    expected |= {  # streaming
        "tensorrt_llm decoupled": (on, None),
        "tensorrt_llm_bls decoupled": (on, None),
        "tensorrt_llm parameter enable_kv_cache_reuse": (on, off),
        "tensorrt_llm parameter normalize_log_probs": (off, None),
        "preprocessing parameter add_special_tokens": (off, None),
        "postprocessing parameter skip_special_tokens": (on, None),
        "postprocessing dynamic_batching preserve_ordering": (on, None),
        "postprocessing parameter state_capacity": ("4096", None),
        "postprocessing parameter state_expiry_seconds": ("600", None),
        "preprocessing output REQUEST_OUTPUT_LEN dims": ("[1]", "[-1]"),
        "tensorrt_llm parameter batch_scheduler_policy": ("guaranteed_no_evict", None),
        "tensorrt_llm parameter enable_chunked_context": (off, None),
        "tensorrt_llm parameter max_seq_len": ("2560", None),
        "tensorrt_llm parameter vocab_size": ("128256", None),
        "tensorrt_llm parameter tokenizer_dir": ("/data/Meta-Llama-3-8B-Instruct", None),
        "tensorrt_llm_bls parameter accumulate_tokens": (off, None),
        "tensorrt_llm_bls parameter tensorrt_llm_model_name": ("tensorrt_llm", None),
        "tensorrt_llm_bls parameter max_concurrent_requests": ("1", None),
        "tensorrt_llm_bls parameter engine_silence_seconds": ("600", None),
        **{f"ensemble output output_ids {key}": (value, None) for key, value in _shape("[-1, -1]")},
        **{f"ensemble output sequence_length {key}": (value, None) for key, value in _shape("[-1]")},
        "ensemble step tensorrt_llm output output_ids": ("output_ids", None),
        "ensemble step tensorrt_llm output sequence_length": ("sequence_length", None),
    }
    for name in ("BATCH_INDEX", "SEQUENCE_INDEX"):
        settings = {"type": "INT32", "dims": "[1]", "optional": on, "ragged": off}
        expected |= {f"postprocessing input {name} {key}": (value, None) for key, value in settings.items()}
        source = f"tensorrt_llm {name.lower()}"
        expected[f"ensemble step postprocessing input {name}"] = (source, None)
    for name in ("guided_decoding_guide_type", "guided_decoding_guide"):
        expected[f"ensemble input {name} ragged"] = (off, on)
    scalars = [name for name, fact in UPSTREAM["1.2.1"]["tensorrt_llm_bls"]["inputs"].items() if fact.get("scalar")]
    expected |= {f"tensorrt_llm_bls input {name} reshape": (None, "[]") for name in scalars}
    expected |= {
        f"tensorrt_llm_bls output {name} {key}": (value, None)
        for name, dims in (("output_ids", "[-1, -1]"), ("sequence_length", "[-1]"))
        for key, value in _shape(dims)
    }
    assert found == expected


def _shape(dims: str) -> tuple[tuple[str, str], ...]:
    return ("type", "INT32"), ("dims", dims)


def _is_image(setting: str) -> bool:
    """Tensors and parameters of pictures and videos: preprocessing here is for text."""
    image = ("IMAGE", "VIDEO", "PIXEL", "ASPECT_RATIO", "CROSS_ATTENTION", "ATTENTION_MASK", "VISION")
    return any(word in setting for word in image)


@pytest.mark.parametrize("version", ["0.19.0", "1.2.1"])
def test_the_tables_of_a_version_are_what_upstream_declares(version: str, deployments_of) -> None:
    (deployment,) = deployments_of({"trtllm": version})
    for name, config in configurations(deployment).items():
        facts = UPSTREAM[version][name]
        ours = settings_of(config)
        for kind in ("input", "output"):
            names = {key.split()[1] for key in ours if key.startswith(f"{kind} ")} - WIRED
            there = {one for one in facts[f"{kind}s"] if not _is_image(one)} - WIRED
            assert names == there, (name, kind)
        if name == "tensorrt_llm":
            for tensor, fact in facts["inputs"].items():
                assert ours[f"input {tensor} ragged"] == str(fact.get("ragged", False)).lower(), tensor
                assert ("reshape" in " ".join(key for key in ours if key.startswith(f"input {tensor} "))) == bool(
                    fact.get("scalar")
                ), tensor


def test_python_files_come_with_it_and_scripts_say_how(tmp_path: Path, repository: Path) -> None:
    write(render(load(EXAMPLES / "llmapi-tp4.yaml"), repository), tmp_path / "out", replace=False)
    engine = tmp_path / "out" / "tensorrt_llm" / "1"
    assert (engine / "model.py").read_bytes() == (repository / "tensorrt_llm" / "1" / "model.py").read_bytes()
    assert json.loads((engine / "llm_args.json").read_text())["max_num_tokens"] == 8192
    assert not list((tmp_path / "out").rglob("__pycache__"))
    assert not (tmp_path / "out" / "build_engines.sh").exists()
    write(render(load(EXAMPLES / "llama3-8b-awq.yaml"), repository), tmp_path / "awq", replace=False)
    script = (tmp_path / "awq" / "build_engines.sh").read_text()
    assert "quantize.py" in script
    assert "--qformat int4_awq --awq_block_size 128" in script
    assert "--max_seq_len 2560" in script
    for path in (tmp_path / "awq").glob("*.sh"):
        assert os.access(path, os.X_OK)
        subprocess.run(["sh", "-n", path], check=True)
    tp4 = render(load(EXAMPLES / "gpt2-medium-tp4.yaml"), repository).files
    assert b"launch_triton_server.py" in tp4[Path("launch.sh")]
    assert b"--world_size 4" in tp4[Path("launch.sh")]


def test_slurm_starts_a_server_for_each_rank(tmp_path: Path, deployments_of, repository: Path) -> None:
    deployments = deployments_of({"parallelism": {"tp": 8, "pp": 2, "nodes": 2}, "model": {"layers": 32}})
    write(render(deployments, repository), tmp_path / "out", replace=False)
    server = tmp_path / "bin" / "tritonserver"
    server.parent.mkdir()
    server.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    server.chmod(0o755)
    launch = ["sh", str(tmp_path / "out" / "launch.sh"), "--log-verbose=1"]
    env = {"PATH": f"{server.parent}:{os.environ['PATH']}"}
    rank = env | {"SLURM_STEP_NUM_TASKS": "16", "SLURM_PROCID": "3"}
    started = subprocess.run(launch, env=rank, capture_output=True, text=True, check=True).stdout.splitlines()
    assert started == [
        f"--model-repository={tmp_path / 'out'}",
        "--disable-auto-complete-config",
        "--backend-config=python,shm-region-prefix-name=prefix3_",
        "--log-verbose=1",
    ]
    alone = subprocess.run(launch, env=env, capture_output=True, text=True, check=False)
    assert alone.returncode == 1
    assert "srun --mpi=pmix --nodes=2 --ntasks=16 sh launch.sh" in alone.stderr


def test_an_engine_has_room_for_prompt_tables(deployments_of, repository: Path) -> None:
    script = render(deployments_of({"build": {"max_prompt_table_size": 640}}), repository).files
    assert b" --max_prompt_embedding_table_size 640\n" in script[Path("build_engines.sh")]
    assert b"prompt_embedding" not in render(deployments_of({}), repository).files[Path("build_engines.sh")]


def test_experts_are_shared_when_the_checkpoint_is_made(deployments_of, repository: Path) -> None:
    deployments = deployments_of({"parallelism": {"tp": 8, "moe_tp": 2, "moe_ep": 4}})
    script = render(deployments, repository).files[Path("build_engines.sh")].decode()
    assert "--tp_size 8 --pp_size 1 --moe_tp_size 2 --moe_ep_size 4" in script


def test_what_tools_leave_behind_stays_out(tmp_path: Path, repository: Path) -> None:
    python = shutil.copytree(repository, tmp_path / "triton_repo")
    for left in (".mypy_cache/3.11/x.json", "__pycache__/model.pyc", ".model.py.swp"):
        (python / "tensorrt_llm" / "1" / left).parent.mkdir(parents=True, exist_ok=True)
        (python / "tensorrt_llm" / "1" / left).write_bytes(b"\xf8")
    files = render(load(EXAMPLES / "embedded.yaml"), python).files
    assert {path for path in files if path.suffix not in (".py", ".pbtxt", ".sh")} == {Path("ensemble/1/.gitkeep")}


def test_heads_of_their_own_are_converted_by_the_operator(deployments_of, repository: Path) -> None:
    deployments = deployments_of({"speculative": {"method": "medusa", "max_draft_tokens": 63}})
    script = render(deployments, repository).files[Path("build_engines.sh")].decode()
    assert "convert_checkpoint.py" not in script
    assert "convert the model with examples/medusa" in script
    assert 'trtllm-build --checkpoint_dir "$CHECKPOINT" --output_dir /engines/small' in script
    assert "--max_draft_len 63 --speculative_decoding_mode medusa" in script


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path, repository: Path) -> None:
    rendering = render(load(EXAMPLES / "embedded.yaml"), repository)
    write(rendering, tmp_path / "out", replace=False)
    stray = tmp_path / "out" / "other"
    stray.mkdir()
    with pytest.raises(RenderError, match=r"holds .* already"):
        write(rendering, tmp_path / "out", replace=False)
    (tmp_path / "out" / "tensorrt_llm" / "1" / "stale.py").write_text("")
    write(rendering, tmp_path / "out", replace=True)
    assert stray.is_dir()
    assert not (tmp_path / "out" / "tensorrt_llm" / "1" / "stale.py").exists()


def test_without_the_python_models_nothing_is_rendered(tmp_path: Path, repository: Path) -> None:
    shutil.copytree(repository / "ensemble", tmp_path / "ensemble")
    with pytest.raises(RenderError, match=r"has no model\.py"):
        render(load(EXAMPLES / "embedded.yaml"), tmp_path)
