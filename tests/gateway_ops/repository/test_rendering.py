"""What the examples render: the tensors of the contract, scripts, and files that come along."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from gateway_ops.check import Severity
from gateway_ops.check.repository import check_repository
from gateway_ops.local_stack.tritonserver import EMBEDDING
from gateway_ops.repository.configs import configurations
from gateway_ops.repository.contradictions import contradictions
from gateway_ops.repository.difference import differences, settings_of
from gateway_ops.repository.model_folders import read_repository
from gateway_ops.repository.rendered_files import RenderError, render, stock_name, write
from gateway_ops.repository.stock_models import MODELS, WIRED
from tests.gateway_ops.repository.conftest import EXAMPLES, load
from tests.gateway_ops.repository.stock import UPSTREAM, is_image

NAMES = sorted(path.stem for path in EXAMPLES.glob("*.yaml"))
RANK_ABOVE_0 = [
    "--model-control-mode=explicit", "--load-model=tensorrt_llm", "--allow-http=false", "--allow-grpc=false",
    "--allow-metrics=false",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_an_example_renders_the_tensors_of_the_contract(name: str, tmp_path: Path, repository: Path) -> None:
    deployments = load(EXAMPLES / f"{name}.yaml")
    assert list(contradictions(deployments)) == []
    rendering = render(deployments, repository)
    write(rendering, tmp_path / "out", replace=False)
    found = [finding for finding in check_repository(tmp_path / "out") if finding.severity is not Severity.INFO]
    assert found == []
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


def test_the_embedded_example_is_the_repository(repository: Path) -> None:
    rendering = render(load(EXAMPLES / "embedded.yaml"), repository)
    theirs = {name: model.config for name, model in read_repository(repository).items() if name != EMBEDDING}
    assert [str(found) for found in differences(rendering.configs, theirs)] == []


@pytest.mark.parametrize("version", ["0.19.0", "1.2.1"])
def test_the_tables_of_a_version_are_what_upstream_declares(version: str, deployments_of) -> None:
    (deployment,) = deployments_of({"trtllm": version})
    for name, config in configurations(deployment).items():
        facts = UPSTREAM[version][name]
        ours = settings_of(config)
        for kind in ("input", "output"):
            names = {key.split()[1] for key in ours if key.startswith(f"{kind} ")} - WIRED
            there = {one for one in facts[f"{kind}s"] if not is_image(one)} - WIRED
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
    for path in (tmp_path / "awq").glob("*.sh"):
        assert os.access(path, os.X_OK)
        subprocess.run(["sh", "-n", path], check=True)


def test_slurm_starts_a_server_for_each_rank(tmp_path: Path, deployments_of, repository: Path) -> None:
    deployments = deployments_of({"parallelism": {"tp": 8, "pp": 2, "nodes": 2}, "model": {"layers": 32}})
    write(render(deployments, repository), tmp_path / "out", replace=False)
    server = tmp_path / "bin" / "tritonserver"
    server.parent.mkdir()
    server.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    server.chmod(0o755)
    launch = ["sh", str(tmp_path / "out" / "launch.sh"), "--log-verbose=1"]
    env = {"PATH": f"{server.parent}:{os.environ['PATH']}"}
    for rank, more in ((0, []), (3, RANK_ABOVE_0)):
        task = env | {"SLURM_STEP_NUM_TASKS": "16", "SLURM_PROCID": str(rank)}
        started = subprocess.run(launch, env=task, capture_output=True, text=True, check=True).stdout.splitlines()
        assert started == [
            f"--model-repository={tmp_path / 'out'}", "--disable-auto-complete-config",
            f"--backend-config=python,shm-region-prefix-name=prefix{rank}_", *more, "--log-verbose=1",
        ]  # fmt: skip
    alone = subprocess.run(launch, env=env, capture_output=True, text=True, check=False)
    assert alone.returncode == 1
    assert "srun --mpi=pmix --nodes=2 --ntasks=16 sh launch.sh" in alone.stderr


def test_what_tools_leave_behind_stays_out(tmp_path: Path, repository: Path) -> None:
    python = shutil.copytree(repository, tmp_path / "triton_repo")
    for left in (".mypy_cache/3.11/x.json", "__pycache__/model.pyc", ".model.py.swp"):
        (python / "tensorrt_llm" / "1" / left).parent.mkdir(parents=True, exist_ok=True)
        (python / "tensorrt_llm" / "1" / left).write_bytes(b"\xf8")
    files = render(load(EXAMPLES / "embedded.yaml"), python).files
    assert {path for path in files if path.suffix not in (".py", ".pbtxt", ".sh")} == {Path("ensemble/1/.gitkeep")}


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
