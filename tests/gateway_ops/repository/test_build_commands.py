"""The commands around a repository: which tools make an engine, what they are told, and how Triton is started."""

from __future__ import annotations

import itertools
import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gateway.settings.deployment_settings import SpeculativeSettings
from gateway_ops.repository.contradictions import contradictions
from gateway_ops.repository.rendered_files import Rendering, render
from tests.gateway_ops.repository.conftest import EXAMPLES, load

BUILD, LAUNCH = Path("build_engines.sh"), Path("launch.sh")


def options_of(script: bytes, command: str) -> dict[str, str]:
    """Options of a command of a script by name; of flags the value is empty."""
    (line,) = [line for line in script.decode().splitlines() if command in line]
    words = [*shlex.split(line), "--"]
    pairs = itertools.pairwise(words)
    return {word: "" if after.startswith("--") else after for word, after in pairs if word.startswith("--")}


def of_example(name: str, script: Path, repository: Path, **changes: Any) -> bytes:
    """A script of an example with changes of its deployments."""
    deployments = [one.model_copy(update=changes) for one in load(EXAMPLES / f"{name}.yaml")]
    return render(deployments, repository).files[script]


def test_the_flags_of_the_readme_s_example_are_in_the_script(repository: Path) -> None:
    (deployment,) = load(EXAMPLES / "gpt2-medium-tp4.yaml")
    logits = deployment.logits.model_copy(update={"context": True, "generation": True})
    script = of_example("gpt2-medium-tp4", BUILD, repository, logits=logits)
    assert b"hf download gpt2-medium --local-dir /models/gpt2-medium --exclude 'original/*'" in script
    converter = options_of(script, "convert_checkpoint.py")
    assert converter.items() >= {"--model_dir": "/models/gpt2-medium", "--dtype": "float16", "--tp_size": "4"}.items()
    flags = {"--gpt_attention_plugin": "float16", "--gemm_plugin": "float16", "--remove_input_padding": "enable"}
    flags |= {"--kv_cache_type": "paged", "--gather_context_logits": "", "--gather_generation_logits": ""}
    flags |= {"--output_dir": "/engines/gpt2-medium/fp16/4-gpu", "--checkpoint_dir": converter["--output_dir"]}
    assert options_of(script, "trtllm-build").items() >= flags.items()


def test_the_flags_of_the_tutorial_are_in_the_script(repository: Path) -> None:
    script = of_example("llama3-8b-awq", BUILD, repository)
    (deployment,) = load(EXAMPLES / "llama3-8b-awq.yaml")
    flags = {"--qformat": "int4_awq", "--awq_block_size": "128", "--batch_size": "12"}
    flags |= {"--model_dir": deployment.folder, "--dtype": deployment.model.dtype}
    quantizer, builder = options_of(script, "quantize.py"), options_of(script, "trtllm-build")
    assert quantizer.items() >= flags.items()
    assert builder["--checkpoint_dir"] == quantizer["--output_dir"]
    assert builder["--max_seq_len"] == "2560"


@pytest.mark.parametrize(
    ("method", "mode"), [("medusa", "medusa"), ("redrafter", "explicit_draft_tokens"), ("eagle", "eagle")]
)
def test_engines_are_built_for_each_way_of_guessing(method: str, mode: str, repository: Path) -> None:
    speculative = SpeculativeSettings.model_validate({"method": method, "max_draft_tokens": 4})
    script = of_example("gpt2-medium-tp4", BUILD, repository, speculative=speculative)
    assert options_of(script, "trtllm-build")["--speculative_decoding_mode"] == mode


@pytest.mark.parametrize(("nodes", "first"), [(1, "tritonserver"), (2, "trtllm-llmapi-launch")])
def test_the_llm_api_is_started_without_mpi_or_by_its_own_launcher(nodes: int, first: str, repository: Path) -> None:
    (deployment,) = load(EXAMPLES / "llmapi-tp4.yaml")
    parallelism = deployment.parallelism.model_copy(update={"nodes": nodes})
    script = of_example("llmapi-tp4", LAUNCH, repository, parallelism=parallelism).decode().replace("\\\n", " ")
    (line,) = [line for line in script.splitlines() if line.startswith("exec ")]
    assert shlex.split(line)[1] == first
    assert "--disable-auto-complete-config" in line


def rendered(deployments: Any, repository: Path) -> Rendering:
    assert list(contradictions(deployments)) == []
    return render(deployments, repository)


@pytest.mark.parametrize(
    ("config", "folder"),
    [
        ({"model_type": "llama"}, "llama"),
        ({"model_type": "mixtral"}, "llama"),
        ({"model_type": "qwen2"}, "qwen"),
        ({"model_type": "gpt2"}, "gpt"),
        ({"model_type": "phi3"}, "phi"),
        ({"model_type": "some_vision_model", "text_config": {"model_type": "qwen2"}}, "qwen"),
    ],
)
def test_the_models_type_picks_the_converter(
    config: dict[str, Any], folder: str, tmp_path: Path, deployments_of, repository: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**config, "vocab_size": 99}))
    model = {"source": str(tmp_path), "family": None}
    rendering = rendered(deployments_of({"model": model}), repository)
    assert f"/models/core/{folder}/convert_checkpoint.py" in rendering.files[BUILD].decode()
    engine = rendering.configs["tensorrt_llm"]
    assert engine.parameters["vocab_size"].string_value == ("" if "text_config" in config else "99")
    elsewhere = {"source": str(tmp_path), "folder": "/models/on-the-server", "family": None}
    script = rendered(deployments_of({"model": elsewhere}), repository).files[BUILD]
    assert options_of(script, "convert_checkpoint.py")["--model_dir"] == "/models/on-the-server"


def test_a_type_without_a_known_converter_is_refused_until_somebody_names_one(
    tmp_path: Path, deployments_of, repository: Path
) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "deepseek_v3"}')
    model = {"source": str(tmp_path), "family": None}
    (found,) = contradictions(deployments_of({"model": model}))
    assert found.keys == ("deployments", 0, "model", "family")
    assert "takes a model of type 'deepseek_v3' is unknown" in found.reason
    assert "llama, qwen, phi, gemma" in found.fix
    script = rendered(deployments_of({"model": model | {"family": "deepseek"}}), repository).files[BUILD].decode()
    assert "convert the model with examples/models/core/deepseek" in script
    assert 'trtllm-build --checkpoint_dir "$CHECKPOINT"' in script
    quantised = model | {"quantization": "fp8"}  # quantize.py knows by itself
    assert "quantize.py" in rendered(deployments_of({"model": quantised}), repository).files[BUILD].decode()


def test_each_converter_is_told_in_its_own_words(deployments_of, repository: Path) -> None:
    model = {"family": "gemma", "dtype": "bfloat16", "quantization": "int8_wo"}
    script = rendered(deployments_of({"model": model, "parallelism": {"tp": 2}}), repository).files[BUILD]
    assert options_of(script, "convert_checkpoint.py") == {
        "--model_dir": "/models/small", "--output_dir": "/tmp/small-checkpoint", "--ckpt-type": "hf",
        "--dtype": "bfloat16", "--world-size": "2", "--use_weight_only": "", "--weight_only_precision": "int8",
    }  # fmt: skip


def test_a_model_that_nobody_can_read_here_is_converted_by_hand(deployments_of, repository: Path) -> None:
    model = {"source": "meta-llama/Llama-3.1-8B-Instruct", "family": None}
    script = rendered(deployments_of({"model": model}), repository).files[BUILD]
    subprocess.run(["sh", "-n"], input=script, check=True)
    assert "name model.family to have this written" in script.decode()
    assert 'trtllm-build --checkpoint_dir "$CHECKPOINT"' in script.decode()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"limits": {"max_seq_len": 16384}}, True),
        ({"limits": {"max_seq_len": 8192}}, False),
        ({"limits": {"max_seq_len": 16384, "max_num_tokens": 16384}}, False),
        ({"limits": {"max_seq_len": 16384}, "scheduler": {"chunked_context": True}}, False),
    ],
)
def test_the_script_says_how_long_prompts_may_be(
    change: dict[str, Any], said: bool, deployments_of, repository: Path
) -> None:
    script = rendered(deployments_of(change), repository).files[BUILD].decode()
    assert ("prompts of at most 8192 tokens" in script) is said


@pytest.mark.parametrize(("sizes", "length"), [((7, 7, 7), 83), ((1, 1, 1), 0), ((4, 2, 3), 6), ((3, 5, 2), 19)])
def test_lookahead_is_built_for_the_drafts_of_its_sizes(
    sizes: tuple[int, int, int], length: int, deployments_of, repository: Path
) -> None:
    window, ngram, verified = sizes
    speculative = {"window_size": window, "ngram_size": ngram, "verification_set_size": verified}
    rendering = rendered(deployments_of({"speculative": {"method": "lookahead", **speculative}}), repository)
    told = options_of(rendering.files[BUILD], "trtllm-build")
    assert told["--max_draft_len"] == str(length)
    assert told["--speculative_decoding_mode"] == "lookahead_decoding"
    parameters = rendering.configs["tensorrt_llm"].parameters
    assert parameters["decoding_mode"].string_value == "lookahead"  # or the backend reads no sizes
    assert parameters["lookahead_window_size"].string_value == str(window)


def test_an_engine_that_two_load_is_built_once(deployments_of, repository: Path) -> None:
    placed = {"executor": "orchestrator", "gpu_ids": [[0]]}
    second = {"name": "b", "prefix": "b_", "triton": {**placed, "gpu_ids": [[1]]}}
    script = rendered(deployments_of({"triton": placed}, second), repository).files[BUILD].decode()
    assert script.count("trtllm-build") == 1


def test_workers_with_ranks_start_with_the_orchestrator(tmp_path: Path, repository: Path) -> None:
    """The draft has one GPU, the target two: upstream's own example of logits that are handed over directly."""
    target, draft = load(EXAMPLES / "draft-target.yaml")
    kinds = {"executor": "orchestrator"}
    file = tmp_path / "gateway.yaml"
    data = {
        "deployments": [
            target.model_dump(mode="json", exclude_unset=True)
            | {"parallelism": {"tp": 2}, "triton": {**kinds, "gpu_ids": [[1, 2]], "participant_ids": [[2, 3]]}}
            | {"speculative": {**target.speculative.model_dump(exclude_unset=True), "fast_logits": True}},
            draft.model_dump(mode="json", exclude_unset=True)
            | {"triton": {**kinds, "gpu_ids": [[0]], "participant_ids": [[1]]}},
        ]
    }
    file.write_text(json.dumps(data))
    rendering = rendered(load(file), repository)
    script = rendering.files[LAUNCH].decode()
    assert "\nmpirun --allow-run-as-root ${MPIRUN_OPTIONS:-} -n 4 " in script
    assert "--load-model=tensorrt_llm --load-model=tensorrt_llm_draft " in script
    assert "export TRTLLM_ORCHESTRATOR=1\nexport TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES=0\n" in script
    for name, ranks in (("tensorrt_llm", "2,3"), ("tensorrt_llm_draft", "1")):
        parameters = rendering.configs[name].parameters
        assert parameters["participant_ids"].string_value == ranks
        assert parameters["speculative_decoding_fast_logits"].string_value == "true"
    plain = rendered((target, draft), repository)
    assert b"export TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES=1\n" in plain.files[LAUNCH]
    assert "speculative_decoding_fast_logits" not in plain.configs["tensorrt_llm_draft"].parameters
    for script in (rendering.files[LAUNCH], rendering.files[BUILD]):
        subprocess.run(["sh", "-n"], input=script, check=True)
