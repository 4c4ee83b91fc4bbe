"""Builds by stand-ins for TensorRT-LLM's tools: steps, resumption, faults, and what is never replaced."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.gateway_ops.engines.conftest import Image
from tests.gateway_ops.engines.standin import safetensors

CONVERT, BUILD = "models/core/llama/convert_checkpoint.py", "trtllm-build"


def test_an_engine_is_built_and_says_what_made_it(image: Image) -> None:
    image.set("GPU", "NVIDIA L4, 23034, 8.9\nNVIDIA L4, 23034, 8.9")
    image.write({"parallelism": {"tp": 2}})
    image.built()
    assert image.calls() == [CONVERT, BUILD]
    assert {path.name for path in image.engine.iterdir()} == {
        "config.json", "rank0.engine", "rank1.engine", "gateway_manifest.json",
    }  # fmt: skip
    manifest = json.loads((image.engine / "gateway_manifest.json").read_text())
    assert (manifest["trtllm"], manifest["gpu"], manifest["capability"]) == ("1.2.1", "NVIDIA L4", "8.9")
    assert manifest["outputs"]["rank1.engine"]["bytes"] == 600
    assert not list(image.disk.rglob("*.partial"))
    assert image.gateway("check").exit_code == 0


def test_what_is_done_is_not_done_again(image: Image) -> None:
    image.built()
    again = image.built()
    assert image.calls() == [CONVERT, BUILD]
    assert again.output.count("done before") == 2
    plan = json.loads(image.gateway("plan", "--json").stdout)["plans"][0]
    assert [step["seconds_before"] is not None for step in plan["steps"]] == [True, True]


def test_a_dry_run_prints_the_words_that_a_build_runs(image: Image) -> None:
    printed = image.gateway("build", "--dry-run").output
    assert image.calls() == []
    image.built()
    for line in (image.home / "calls.jsonl").read_text().splitlines():
        tool, *words = json.loads(line)
        assert f"{tool} {' '.join(words)}\n" in printed
    assert f"mv {image.engine}.partial {image.engine}\n" in printed


@pytest.mark.parametrize(
    ("change", "tools"),
    [
        ({"model": {"source": "a/model", "folder": "DISK/fetched", "family": "llama"}}, ["hf", CONVERT, BUILD]),
        ({"model": {"source": "DISK/model", "quantization": "fp8"}}, ["quantization/quantize.py", BUILD]),
        ({"model": {"source": "DISK/model", "dtype": "float16"},
          "speculative": {"method": "medusa", "heads": "/heads", "num_heads": 4, "max_draft_tokens": 63}},
         ["medusa/convert_checkpoint.py", BUILD]),
        ({"lora": {"prefetch_dir": "DISK/lora", "adapters": {1: "/lora/sql", 7: "/lora/law"}}},
         [CONVERT, BUILD, "hf_lora_convert.py", "hf_lora_convert.py"]),
        ({"guided_decoding": {"tokenizer_info": "DISK/engines/tokenizer.json"}},
         [CONVERT, BUILD, "generate_xgrammar_tokenizer_info.py"]),
    ],
)  # fmt: skip
def test_each_kind_of_deployment_has_its_steps(image: Image, change: dict[str, Any], tools: list[str]) -> None:
    image.write(json.loads(json.dumps(change).replace("DISK", str(image.disk))))
    image.built()
    image.built()
    assert image.calls() == tools


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer"])
def test_adapters_and_the_tokenizers_file_lie_where_triton_reads_them(image: Image, name: str) -> None:
    file = image.disk / "engines" / name
    lora = {"prefetch_dir": str(image.disk / "lora"), "adapters": {7: "/lora/law"}}
    image.write({"guided_decoding": {"tokenizer_info": str(file)}, "lora": lora})
    image.built()
    assert (image.disk / "lora" / "7" / "model.lora_weights.npy").is_file()
    assert "done before" in image.built().output
    file.write_text("changed")
    assert f"{name} has changed since it was built" in image.gateway("build").output
    image.built("--rebuild")
    assert file.with_name(f"{name}.before-1").read_text() == "changed"
    assert json.loads(file.read_text()) == {"encoded_vocab": []}
    assert image.gateway("check").exit_code == 0


def test_half_of_a_model_is_not_converted(image: Image) -> None:
    model, index = image.disk / "model", "model.safetensors.index.json"
    (model / index).write_text(json.dumps({"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}))
    (model / "model-1.safetensors").write_bytes(safetensors())
    assert (
        f"{model} lacks model-2.safetensors: the download is incomplete. Download the whole model" in image.rejected()
    )
    (model / index).unlink()
    (model / "model-1.safetensors").write_bytes(b"half")
    assert "model-1.safetensors is not a safetensors file." in image.gateway("build").output
    (model / "config.json").unlink()
    image.write({"model": {"source": str(model), "family": "llama"}})
    assert f"{model} is not a model folder: it has no config.json." in image.gateway("build").output
    assert image.calls() == []


def test_half_of_a_model_that_can_be_fetched_is_set_aside_for_a_whole_one(image: Image) -> None:
    fetched = image.disk / "fetched"
    fetched.mkdir()
    (fetched / "config.json").write_text((image.disk / "model" / "config.json").read_text())
    (fetched / "model.safetensors").write_bytes(b"half")
    image.write({"model": {"source": "a/model", "folder": str(fetched), "family": "llama"}})
    what = f"{fetched} is incomplete: {fetched}/model.safetensors is not a safetensors file. Use --rebuild"
    assert what in image.rejected()
    image.built("--rebuild")
    assert image.calls() == ["hf", CONVERT, BUILD]
    assert (image.disk / "fetched.before-1" / "model.safetensors").read_bytes() == b"half"


def test_a_model_for_the_llm_api_must_be_there(image: Image) -> None:
    image.write({"engine": "llmapi", "engine_dir": None, "model": {"source": "/nowhere/model"}, "limits": {}})
    assert "/nowhere/model is not a model folder: it has no config.json." in image.rejected()
    checked = image.gateway("check")
    assert checked.exit_code == 1
    assert "/nowhere/model: error: /nowhere/model is not a model folder" in checked.output
    image.write({"engine": "llmapi", "engine_dir": None, "model": {"source": str(image.disk / "model")}, "limits": {}})
    image.built()
    assert image.gateway("check").exit_code == 0


def test_a_checkpoint_is_quantised_for_the_llm_api(image: Image) -> None:
    model = {"source": "a/model", "folder": str(image.disk / "fp8"), "quantization": "fp8"}
    image.write({"engine": "llmapi", "engine_dir": None, "trtllm": "1.3.0", "model": model, "limits": {}})
    image.set("TRTLLM", "1.3.0")
    image.built()
    assert image.calls() == ["hf", "llm_ptq/hf_ptq.py"]
    assert (image.disk / "fp8" / "hf_quant_config.json").is_file()
    assert image.gateway("check").exit_code == 0


def test_another_image_is_named_before_anything_runs(image: Image) -> None:
    image.set("TRTLLM", "1.1.0")
    assert "this image has TensorRT-LLM 1.1.0, but deployment 'small' has trtllm: 1.2.1" in image.rejected()
    image.set("TRTLLM", "")
    assert "TensorRT-LLM is not installed" in image.gateway("build").output
    image.set("TRTLLM", "1.2.1")
    image.set("GPU", "")
    assert "nvidia-smi finds no GPU" in image.gateway("build").output
    assert image.calls() == []


def test_weights_that_do_not_fit_are_not_converted(image: Image) -> None:
    config = json.loads((image.disk / "model" / "config.json").read_text())
    large = {"hidden_size": 8192, "num_hidden_layers": 80, "num_attention_heads": 64, "intermediate_size": 28672}
    (image.disk / "model" / "config.json").write_text(json.dumps(config | large))
    said = image.rejected()
    assert "small does not fit on NVIDIA L4" in said
    assert "parallelism.tp: 8" in said
    assert image.calls() == []
    image.built("--anyway")


def test_a_model_that_is_fetched_is_judged_before_it_is_converted(image: Image) -> None:
    """Nothing is known of it before."""
    image.write({"model": {"source": "a/model", "folder": str(image.disk / "fetched"), "family": "llama"}})
    image.set("GPU", "NVIDIA Tiny, 1024, 8.9")
    assert "small does not fit on NVIDIA Tiny" in image.rejected()
    assert image.calls() == ["hf"]
    assert (image.disk / "fetched" / "config.json").is_file()
    image.built("--anyway")
    assert image.calls() == ["hf", CONVERT, BUILD]


def test_a_disk_must_hold_all_that_is_made(image: Image) -> None:
    """Engines of two deployments, of which either would have room."""
    free = shutil.disk_usage(image.disk).free
    config = json.loads((image.disk / "model" / "config.json").read_text())
    layer = 3 * 2048 * 65536 * 2  # bytes of one layer, nearly
    large = {"hidden_size": 2048, "intermediate_size": 65536, "num_hidden_layers": round(0.3 * free / layer)}
    (image.disk / "model" / "config.json").write_text(json.dumps(config | large))
    image.set("GPU", f"NVIDIA Huge, {2**30}, 9.0\nNVIDIA Huge, {2**30}, 9.0")
    one: dict[str, Any] = {"triton": {"executor": "orchestrator", "gpu_ids": [[0]]}}
    other: dict[str, Any] = {"name": "other", "prefix": "b_", "engine_dir": str(image.disk / "engines" / "other")}
    image.write(one, one | other | {"triton": {"executor": "orchestrator", "gpu_ids": [[1]]}})
    assert "are needed there, and" in image.rejected()
    assert image.calls() == []


def test_a_full_disk_is_named_and_the_build_goes_on_where_it_was(image: Image) -> None:
    image.set("FAULT", "trtllm-build:full")
    said = image.rejected()
    assert "build the TensorRT engine: trtllm-build ended with status 1. The disk is full" in said
    assert "[Errno 28] No space left on device" in said
    assert not image.engine.exists()
    image.set("FAULT", "")
    again = image.built()
    assert image.calls() == [CONVERT, BUILD, BUILD]
    assert (
        f"{image.engine}.partial is an unfinished result of an earlier run: renamed to {image.engine}.partial.before-1"
        in again.output
    )
    assert (image.disk / "engines" / "small.partial.before-1" / "rank0.engine").read_bytes() == b"half"


def test_a_write_of_its_own_that_fails_leaves_no_engine_without_a_manifest(image: Image) -> None:
    words = [sys.executable, "-m", "gateway_ops.cli", "engine", "build", str(image.file)]
    small = 700  # bytes: enough for the stand-ins' files, too little for a manifest
    limited = subprocess.run(
        words,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (small, small)),
    )
    assert limited.returncode == 1
    assert "File too large" in limited.stderr
    assert "Traceback" not in limited.stderr
    assert not (image.disk / "engines" / "small.work" / "checkpoint").exists()
    image.built()


def test_a_tool_that_ends_well_without_its_files_is_not_believed(image: Image) -> None:
    image.set("FAULT", "trtllm-build:short")
    result = image.gateway("build")
    assert "trtllm-build succeeded, but" in result.output
    assert "lacks config.json" in result.output
    assert not image.engine.exists()


def test_two_engines_of_one_model_do_not_fetch_it_at_once(image: Image) -> None:
    model = {"source": "a/model", "folder": str(image.disk / "fetched"), "family": "llama"}
    one: dict[str, Any] = {"model": model, "triton": {"executor": "orchestrator", "gpu_ids": [[0]]}}
    other: dict[str, Any] = {"name": "other", "prefix": "b_", "engine_dir": str(image.disk / "engines" / "other")}
    image.write(one, one | other | {"triton": {"executor": "orchestrator", "gpu_ids": [[1]]}})
    image.set("FAULT", "hf:hang")
    builder = image.started("--only", "small")
    tool = image.hanging(builder)
    image.set("FAULT", "")
    assert f"{image.disk}/fetched.work is in use by another build" in image.rejected("--only", "other")
    os.kill(tool, signal.SIGTERM)
    builder.communicate()
    image.built("--only", "other")
    assert image.calls() == ["hf", "hf", CONVERT, BUILD]


def test_a_killed_build_is_resumed_once_its_tool_has_ended(image: Image) -> None:
    image.set("FAULT", "trtllm-build:hang")
    builder = image.started()
    tool = image.hanging(builder)
    builder.kill()
    builder.communicate()
    image.set("FAULT", "")
    assert "is in use by another build, or by a tool" in image.rejected()
    os.kill(tool, signal.SIGKILL)
    finished = image.built().output
    assert "convert the model to a TensorRT-LLM checkpoint: done before" in finished
    assert "an unfinished result of an earlier run" in finished
    assert image.calls() == [CONVERT, BUILD, BUILD]
    assert image.gateway("check").exit_code == 0


def test_a_build_that_is_told_to_end_ends_its_tool(image: Image) -> None:
    image.set("FAULT", "trtllm-build:hang")
    with image.started() as builder:
        tool = image.hanging(builder)
        builder.terminate()
        said, _ = builder.communicate()
    assert builder.returncode == 130
    assert "interrupted; run the same command again to continue" in said
    with pytest.raises(ProcessLookupError):
        os.kill(tool, 0)


@pytest.mark.parametrize("what", ["edited", "changed", "foreign", "other_gpu", "other_options", "deep", "form"])
def test_what_was_made_otherwise_is_named_and_kept(image: Image, what: str) -> None:
    image.built()
    manifest, config = image.engine / "gateway_manifest.json", image.engine / "config.json"
    said = spoil(image, what, manifest, config)
    before = {path: path.read_bytes() for path in image.engine.iterdir()}
    assert said in image.rejected()
    assert {path: path.read_bytes() for path in image.engine.iterdir()} == before
    assert image.gateway("plan").exit_code == 0
    rebuilt = image.built("--rebuild")
    kept = image.engine.with_name("small.before-1")
    assert f"renamed to {kept}" in rebuilt.output
    assert {path.name: path.read_bytes() for path in kept.iterdir()} == {p.name: data for p, data in before.items()}
    assert image.gateway("check").exit_code == 0


def spoil(image: Image, what: str, manifest: Path, config: Path) -> str:
    """Change what was built, or what it is built on; what the next build says of it."""
    if what == "edited":
        manifest.write_text(manifest.read_text().replace("8.9", "9.0"))
        return "has a manifest that was edited by hand (gateway_manifest.json)"
    if what in ("deep", "form"):
        other = manifest.read_text().replace('"manifest": 1', '"manifest": 2')
        manifest.write_text(other if what == "form" else "[" * 100_000)
        return "has a manifest that cannot be read (gateway_manifest.json)"
    if what == "changed":
        config.write_text(config.read_text().replace("1.2.1", "1.2.0"))
        return "has changed since it was built: config.json has different content"
    if what == "foreign":
        manifest.unlink()
        return "exists, and has no manifest of this gateway"
    if what == "other_gpu":
        image.set("GPU", "NVIDIA H100 80GB HBM3, 81559, 9.0")
    else:
        image.write({"limits": image.small()["limits"] | {"max_batch_size": 4}})
    return "was built from other inputs, options, version or GPU (built by TensorRT-LLM 1.2.1 on NVIDIA L4)"


def test_new_weights_are_converted_again(image: Image) -> None:
    image.built()
    config = image.disk / "model" / "config.json"
    config.write_text(config.read_text().replace("100", "120"))
    assert "checkpoint was built from other inputs" in image.gateway("build").output
    image.built("--rebuild")
    assert image.calls() == [CONVERT, BUILD] * 2


def test_a_checkpoint_by_hand_is_asked_for_by_its_place(image: Image) -> None:
    image.write({"speculative": {"method": "medusa"}, "model": {"source": str(image.disk / "model")}})
    asked = image.gateway("build")
    place = image.disk / "engines" / "small.work" / "checkpoint"
    assert (
        f"convert the model with examples/medusa, and name the folder with the result. Put it at {place}"
        in asked.output
    )
    place.mkdir(parents=True)
    mapping = {"world_size": 1, "tp_size": 1, "pp_size": 1}
    (place / "config.json").write_text(json.dumps({"mapping": mapping}))
    image.built()
    assert image.calls() == [BUILD]
