"""The commands of the READMEs and of the tutorial, in the scripts of a rendered repository."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.settings.deployment_settings import DeploymentSettings, SpeculativeSettings
from gateway_ops.repository.rendered_files import render
from tests.gateway_ops.repository.conftest import EXAMPLES, load

BUILD, LAUNCH = Path("build_engines.sh"), Path("launch.sh")
REPOSITORY = Path(__file__).parents[3] / "triton_repo"


def commands(name: str, script: Path, **changes: Any) -> list[list[str]]:
    """The commands of a script, as a shell reads them."""
    deployments = [one.model_copy(update=changes) for one in load(EXAMPLES / f"{name}.yaml")]
    text = render(deployments, REPOSITORY).files[script].decode().replace("\\\n", " ")
    return [shlex.split(line) for line in text.splitlines() if line and not line.startswith("#")]


def told(lines: list[list[str]], tool: str) -> dict[str, str]:
    """The flags that a tool is given, with their values."""
    (line,) = [line for line in lines if any(word.endswith(tool) for word in line)]
    pairs = zip(line, [*line[1:], ""], strict=True)
    return {word: "" if after.startswith("--") else after for word, after in pairs if word.startswith("--")}


def test_the_flags_of_the_readme_s_example_are_in_the_script() -> None:
    (deployment,) = load(EXAMPLES / "gpt2-medium-tp4.yaml")
    logits = deployment.logits.model_copy(update={"context": True, "generation": True})
    lines = commands("gpt2-medium-tp4", BUILD, logits=logits)
    assert ["hf", "download", "gpt2-medium", "--local-dir", "/models/gpt2-medium", "--exclude", "original/*"] in lines
    converter = told(lines, "convert_checkpoint.py")
    assert {name: converter[name] for name in ("--model_dir", "--dtype", "--tp_size")} == {
        "--model_dir": "/models/gpt2-medium",
        "--dtype": "float16",
        "--tp_size": "4",
    }
    builder = told(lines, "trtllm-build")
    assert builder["--checkpoint_dir"] == converter["--output_dir"]
    assert builder["--output_dir"] == "/engines/gpt2-medium/fp16/4-gpu"
    assert (builder["--gpt_attention_plugin"], builder["--gemm_plugin"]) == ("float16", "float16")
    assert (builder["--remove_input_padding"], builder["--kv_cache_type"]) == ("enable", "paged")
    assert {"--gather_context_logits", "--gather_generation_logits"} <= builder.keys()


def test_the_flags_of_the_tutorial_are_in_the_script() -> None:
    quantizer = told(commands("llama3-8b-awq", BUILD), "quantize.py")
    (deployment,) = load(EXAMPLES / "llama3-8b-awq.yaml")
    names = ("--model_dir", "--dtype", "--qformat", "--awq_block_size", "--batch_size")
    assert {name: quantizer[name] for name in names} == {
        "--model_dir": deployment.folder,
        "--dtype": deployment.model.dtype,
        "--qformat": "int4_awq",
        "--awq_block_size": "128",
        "--batch_size": "12",
    }
    assert told(commands("llama3-8b-awq", BUILD), "trtllm-build")["--checkpoint_dir"] == quantizer["--output_dir"]


@pytest.mark.parametrize(
    ("method", "mode"),
    [
        ("medusa", "medusa"),
        ("redrafter", "explicit_draft_tokens"),
        ("eagle", "eagle"),
        ("lookahead", "lookahead_decoding"),
    ],
)
def test_engines_are_built_for_each_way_of_guessing(method: str, mode: str) -> None:
    sizes = ("window_size", "ngram_size", "verification_set_size") if method == "lookahead" else ("max_draft_tokens",)
    speculative = SpeculativeSettings.model_validate({"method": method, **dict.fromkeys(sizes, 4)})
    builder = told(commands("gpt2-medium-tp4", BUILD, speculative=speculative), "trtllm-build")
    assert builder["--speculative_decoding_mode"] == mode


def test_the_launcher_is_told_of_ranks_models_and_mode() -> None:
    leader = commands("gpt2-medium-tp4", LAUNCH)
    mpirun = next(line for line in leader if line[0] == "mpirun")
    assert mpirun[mpirun.index("-n") + 1] == "4"
    others = next(line for line in leader if "--model-control-mode=explicit" in line)
    assert [word for word in others if word.startswith("--load-model")] == ["--load-model=tensorrt_llm"]
    assert ["export", "TRTLLM_ORCHESTRATOR=1"] not in leader
    orchestrator = commands("draft-target", LAUNCH)
    mpirun = next(line for line in orchestrator if line[0] == "mpirun")
    assert mpirun[mpirun.index("-n") + 1] == "1"
    assert ["export", "TRTLLM_ORCHESTRATOR=1"] in orchestrator
    assert ["export", "TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES=1"] in orchestrator
    assert any("--pinned-memory-pool-byte-size=0" in line for line in orchestrator)


@pytest.mark.parametrize(("nodes", "first"), [(1, "tritonserver"), (2, "trtllm-llmapi-launch")])
def test_the_llm_api_is_started_without_mpi_or_by_its_own_launcher(
    nodes: int, first: str, scaled: Callable[[int], DeploymentSettings]
) -> None:
    text = render([scaled(nodes)], REPOSITORY).files[LAUNCH].decode()
    (line,) = [line for line in text.splitlines() if line.startswith("exec ")]
    assert shlex.split(line)[1] == first
    assert "--disable-auto-complete-config" in line


@pytest.fixture
def scaled() -> Callable[[int], DeploymentSettings]:
    """The example for the LLM API, over so many nodes."""
    (deployment,) = load(EXAMPLES / "llmapi-tp4.yaml")

    def over(nodes: int) -> DeploymentSettings:
        return deployment.model_copy(update={"parallelism": deployment.parallelism.model_copy(update={"nodes": nodes})})

    return over
