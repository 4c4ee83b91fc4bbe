"""Plans of the flows that people come with: commands, memory, whether it fits, and what would make it fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from gateway_ops.cli.root import app
from tests.gateway_ops.engines.test_engine_memory import EXPERTS, MODELS

EXAMPLES = Path(__file__).parents[3] / "examples" / "deployments"


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folders with the ``config.json`` of well-known models, on a machine without GPUs."""
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setenv("TRTLLM_EXAMPLES", "/app/examples")
    for name, config in MODELS.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(config))
    return tmp_path


def plan(file: Path, *words: str) -> Result:
    return CliRunner().invoke(app, ["engine", "plan", str(file), *words])


def plans(file: Path, *words: str) -> list[dict[str, Any]]:
    result = plan(file, "--json", *words)
    found: list[dict[str, Any]] = json.loads(result.stdout)["plans"]
    return found


def commands(found: dict[str, Any]) -> list[str]:
    return [line for step in found["steps"] for line in step["lines"]]


def test_the_tutorials_llama_in_awq_on_an_l4(models: Path) -> None:
    result = plan(EXAMPLES / "llama3-8b-awq.yaml", "--gpu", "l4", "--model-dir", str(models / "Llama 3 8B"))
    assert result.exit_code == 0
    for line in (
        "python3 /app/examples/quantization/quantize.py --model_dir /data/Meta-Llama-3-8B-Instruct "
        "--output_dir /data/llama3-engine.work/checkpoint.partial --dtype bfloat16 --tp_size 1 --pp_size 1 "
        "--qformat int4_awq --awq_block_size 128 --batch_size 12",
        "  on disk: source: 14.96 GiB",
        "  per GPU: weights: 5.31 GiB (int4_awq)",
        "  per GPU: KV cache, a token: 128.0 KiB (auto)",
        "  per GPU: KV cache, as made: 2.50 GiB (on NVIDIA L4, 22.49 GiB)",
        "It fits on NVIDIA L4: 8 concurrent sequences of full length fit into its cache.",
    ):
        assert f"{line}\n" in result.output


def test_target_and_draft_are_weighed_together(models: Path) -> None:
    file, folder = EXAMPLES / "draft-target.yaml", str(models / "Llama 3 8B")
    both = ["--model-dir", f"target={folder}", "--model-dir", f"draft={folder}"]
    target, draft = plans(file, "--gpu", "a100-80", *both)
    assert "--speculative_decoding_mode draft_tokens_external" in commands(target)[4]
    assert "--max_draft_len 8" in commands(target)[4]
    assert (target["shares_gpus_with"], draft["shares_gpus_with"]) == (["draft"], ["target"])
    assert [target["fits"], draft["fits"]] == [True, True]
    # The second engine's cache is a share of what the first has left.
    assert draft["cache"]["bytes"] < target["cache"]["bytes"] < 0.5 * target["gpu"]["memory"]
    smaller = plans(file, "--gpu", "a40", *both)
    assert [one["fits"] for one in smaller] == [True, False]


def test_two_models_with_lora_on_their_own_gpus(models: Path) -> None:
    folders = [
        "--model-dir", f"llama3-8b={models / 'Llama 3 8B'}", "--model-dir", f"qwen2.5-7b={models / 'Qwen2.5 7B'}",
    ]  # fmt: skip
    llama, qwen = plans(EXAMPLES / "two-models.yaml", "--gpu", "h100", *folders)
    assert "--lora_plugin auto --max_lora_rank 16 --lora_target_modules attn_q attn_k attn_v" in commands(llama)[4]
    assert commands(qwen)[2].startswith("python3 /app/examples/models/core/qwen/convert_checkpoint.py")
    assert (llama["shares_gpus_with"], qwen["shares_gpus_with"]) == ([], [])
    assert [llama["fits"], qwen["fits"]] == [True, True]


def written(folder: Path, **changes: Any) -> Path:
    """A settings file with one deployment of Llama 3.1 70B."""
    one = {"name": "big", "engine": "tensorrt", "engine_dir": "/engines/big"} | changes
    one["model"] = {"source": str(folder / "Llama 3.1 70B"), "dtype": "bfloat16"} | changes.get("model", {})
    file = folder / "gateway.yaml"
    file.write_text(yaml.safe_dump({"deployments": [one]}))
    return file


def for_llmapi(models: Path, source: dict[str, Any] | str, name: str = "Llama 3 8B", **changes: Any) -> Path:
    """A settings file with a model that the LLM API loads as it is; its quantisation, or all of its configuration."""
    known = {**MODELS, **EXPERTS}[name]
    (models / "source").mkdir(exist_ok=True)
    text = source if isinstance(source, str) else json.dumps(known | {"quantization_config": source})
    (models / "source" / "config.json").write_text(text)
    model = {"source": str(models / "source"), "dtype": "auto"}
    return written(models, engine="llmapi", engine_dir=None, model=model, **changes)


def test_ranks_have_a_gpu_each(models: Path) -> None:
    (found,) = plans(EXAMPLES / "gpt2-medium-tp4.yaml", "--gpu", "t4", "--model-dir", str(models / "GPT-2 medium"))
    assert (found["gpus"], found["fits"]) == (4, True)
    file = written(models, parallelism={"tp": 8, "pp": 2, "nodes": 2}, limits={"max_seq_len": 32768})
    (found,) = plans(file, "--gpu", "a100-40")
    assert (found["gpus"], found["fits"]) == (16, True)
    assert "--tp_size 8 --pp_size 2" in commands(found)[0]


def test_medusa_with_its_heads(models: Path) -> None:
    heads = {"method": "medusa", "heads": "/models/heads", "num_heads": 4, "max_draft_tokens": 63}
    file = written(models, speculative=heads, model={"source": str(models / "Llama 2 7B"), "dtype": "float16"})
    (found,) = plans(file)
    assert commands(found)[0].startswith(
        f"python3 /app/examples/medusa/convert_checkpoint.py --model_dir '{models / 'Llama 2 7B'}'"
    )
    assert "--medusa_model_dir /models/heads --num_medusa_heads 4 --max_medusa_token_len 63" in commands(found)[0]
    assert "--speculative_decoding_mode medusa" in commands(found)[2]
    assert found["fits"] is None


def test_what_does_not_fit_is_told_what_would(models: Path) -> None:
    file = written(models, limits={"max_seq_len": 8192})
    result = plan(file, "--gpu", "h100")
    assert result.exit_code == 1
    assert "big does not fit on NVIDIA H100 80GB HBM3" in result.output
    (found,) = plans(file, "--gpu", "h100")
    wanted = {change["key"]: change["value"] for change in found["would_fit_with"]}
    assert wanted["parallelism.tp"] == 2
    assert "model.quantization" in wanted
    for key, value in wanted.items():
        section, _, name = key.partition(".")
        changed = written(models, **({"limits": {"max_seq_len": 8192}} | {section: {name: value}}))
        assert plans(changed, "--gpu", "h100")[0]["fits"], key


def test_changes_that_contradict_other_settings_are_not_advised(models: Path) -> None:
    sizes = {"max_input_len": 8000, "max_seq_len": 65536, "max_num_tokens": 8192}
    free = plans(written(models, parallelism={"tp": 2}, limits=sizes), "--gpu-memory", "80")[0]["would_fit_with"]
    assert "limits.max_num_tokens" not in {change["key"] for change in free}
    pieces = {"scheduler": {"chunked_context": True}, "parallelism": {"tp": 2}, "limits": sizes}
    (found,) = plans(written(models, **pieces), "--gpu-memory", "80")
    assert {"key": "limits.max_num_tokens", "value": 1024} in found["would_fit_with"]


def test_a_cache_that_holds_no_whole_sequence_wants_shorter_ones(models: Path) -> None:
    file = written(models, parallelism={"tp": 2}, limits={"max_seq_len": 131072})
    (found,) = plans(file, "--gpu-memory", "85")
    assert found["fits"] is False
    wanted = {change["key"]: change["value"] for change in found["would_fit_with"]}
    shorter = written(models, parallelism={"tp": 2}, limits={"max_seq_len": wanted["limits.max_seq_len"]})
    assert plans(shorter, "--gpu-memory", "85")[0]["fits"]


@pytest.mark.parametrize(
    ("gpu", "model", "said"),
    [
        ("a100-80", {"quantization": "fp8"}, "fp8 needs compute capability 8.9, and NVIDIA A100-SXM4-80GB has 8.0."),
        ("h200", {"quantization": "nvfp4"}, "nvfp4 needs compute capability 10.0, and NVIDIA H200 has 9.0."),
        ("t4", {"dtype": "bfloat16"}, "bfloat16 needs compute capability 8.0, and Tesla T4 has 7.5."),
        ("a100-80", {"quant_method": "fp8"}, "fp8 needs compute capability 8.9"),
        ("h100", {"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4 needs compute capability 10.0"),
    ],
)
def test_a_type_that_the_gpu_has_no_kernels_for(models: Path, gpu: str, model: dict[str, str], said: str) -> None:
    file = written(models, model=model, parallelism={"tp": 8}, limits={"max_seq_len": 2048})
    if "quant_method" in model:  # as the source is stored
        file = for_llmapi(models, model, limits={"max_seq_len": 2048})
        assert plan(file, "--gpu", "b200").exit_code == 0
    result = plan(file, "--gpu", gpu)
    assert result.exit_code == 1
    assert f"It does not run: {said}" in result.output


def test_what_is_not_known_is_said_to_be(models: Path) -> None:
    result = plan(EXAMPLES / "llama3-8b-awq.yaml")
    assert result.exit_code == 0
    assert "memory: unknown (/data/Meta-Llama-3-8B-Instruct/config.json cannot be read here" in result.output
    assert "(hf download meta-llama/Meta-Llama-3-8B-Instruct config.json --local-dir DIR)" in result.output
    assert "time unknown" in result.output
    assert "Whether it fits is unknown: this machine has no GPU" in result.output


def test_an_architecture_that_no_converter_is_known_for(models: Path) -> None:
    (models / "new").mkdir()
    (models / "new" / "config.json").write_text('{"model_type": "brandnew"}')
    result = plan(written(models, model={"source": str(models / "new")}))
    assert result.exit_code == 1
    assert "which convert_checkpoint.py takes a model of type 'brandnew' is unknown" in result.output
    named = written(models, model={"source": str(models / "new"), "quantization": "fp8"})
    assert plans(named)[0]["unknown"] == "config.json of brandnew has its sizes in an unknown form"


def test_deepseek_v3_for_the_llm_api_fits_on_eight_h200(models: Path) -> None:
    """As its card and upstream's README say: 8 GPUs of 141 GB, and not 8 of 80."""
    stored = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    limits = {"max_seq_len": 16384, "max_num_tokens": 8192}
    file = for_llmapi(models, stored, "DeepSeek-V3", parallelism={"tp": 8}, limits=limits)
    result = plan(file, "--gpu", "h200")
    assert result.exit_code == 0, result.output
    assert "  on disk: source: 626.77 GiB\n  per GPU: weights: 78.35 GiB (as in the source)\n" in result.output
    assert "  per GPU: KV cache, a token: 68.6 KiB (auto)\n" in result.output
    assert "on disk: checkpoint" not in result.output
    assert plan(file, "--gpu", "h100").exit_code == 1


@pytest.mark.parametrize(
    ("said", "source"),
    [
        ("config.json has hidden_size 1000000", {"hidden_size": 10**400}),
        ("config.json has max_position_embeddings 1000000", {"max_position_embeddings": 10**400}),
        ("config.json has num_hidden_layers -3, which is not a model size", {"num_hidden_layers": -3}),
        ("config.json has num_key_value_heads True, which is not a model size", {"num_key_value_heads": True}),
        ("config.json has vocab_size '32000', which is not a model size", {"vocab_size": "32000"}),
        ("config.json has 64 attention heads and a hidden size of 16", {"hidden_size": 16, "num_attention_heads": 64}),
        ("how the model is quantised is unknown: 'voodoo'", {"quantization_config": {"quant_method": "voodoo"}}),
        *(("", text) for text in ("[" * 100_000, '{"model_type": "\\ud800\\u001b[31m"}', "[1]", "{" + "\x00")),
    ],
)
def test_a_configuration_that_no_model_has_is_named(models: Path, said: str, source: dict[str, Any] | str) -> None:
    text = source if isinstance(source, str) else json.dumps(MODELS["Llama 3 8B"] | source)
    result = plan(for_llmapi(models, text), "--gpu", "h100")
    assert result.exit_code == 0, result.output
    assert f"memory: unknown ({said}" in result.output
    assert "\x1b" not in result.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--gpu", "voodoo2"], "--gpu 'voodoo2' is unknown: choose one of t4,"),
        (["--gpu-memory", "0"], "--gpu-memory: write the GiB of one GPU"),
        (["--model-dir", "x=/tmp"], "unknown deployment 'x'"),
        (["--model-dir", "/nowhere"], "/nowhere has no config.json"),
        (["--only", "other"], "unknown deployment 'other'"),
    ],
)
def test_mistakes_of_the_command_line(models: Path, words: list[str], said: str) -> None:
    result = plan(written(models), *words)
    assert result.exit_code in (1, 2)
    assert said in result.output


def test_a_file_without_engines_has_nothing_to_plan() -> None:
    result = plan(EXAMPLES / "embedded.yaml")
    assert result.exit_code == 1
    assert "no deployment has a TensorRT-LLM engine" in result.output


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_dry_run_of_each_example_prints_what_its_plan_has(example: Path, models: Path) -> None:
    printed = CliRunner().invoke(app, ["engine", "build", "--dry-run", str(example)])
    assert printed.exit_code == 0, printed.output
    lines = printed.output.splitlines()
    for found in plans(example):
        assert [line for line in commands(found) if line not in lines] == []
