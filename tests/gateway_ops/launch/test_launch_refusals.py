"""What would fail later is said before anything starts, with its fix; dry runs print the commands of the examples."""

from __future__ import annotations

import shlex
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from launched import render
from typer.testing import CliRunner, Result

from gateway_ops.cli.root import app
from tests.ports import free_port

EXAMPLES = Path(__file__).parents[3] / "examples" / "deployments"
BINARY = "/opt/tritonserver/bin/tritonserver"


def launch(*options: str | Path) -> Result:
    http, grpc, metrics = (str(free_port()) for _ in range(3))
    ports = ["--http-port", http, "--grpc-port", grpc, "--metrics-port", metrics]
    return CliRunner().invoke(app, ["launch", *ports, *map(str, options)])


def printed(name: str, *options: str) -> list[list[str]]:
    """The command of an example's dry run: the words of each rank, with the variables before those of the first."""
    file = EXAMPLES / f"{name}.yaml"
    done = CliRunner().invoke(app, ["launch", str(file), "--repository", "/repo", "--dry-run", *options])
    assert done.exit_code == 0, done.output
    (line,) = [line for line in done.stdout.replace("\\\n", "").splitlines() if not line.startswith("#")]
    ranks: list[list[str]] = [[]]
    for word in shlex.split(line):
        ranks.append([]) if word == ":" else ranks[-1].append(word)
    return ranks


def rank(number: str, *options: str) -> list[str]:
    regions = f"--backend-config=python,shm-region-prefix-name=gateway_{number}"
    common = ["--id=gateway", "--model-repository=/repo", regions, "--disable-auto-complete-config"]
    return [BINARY, *common, "--exit-timeout-secs=30", *options]


ENDPOINTS = [
    option
    for kind, port in (("http", 8000), ("grpc", 8001), ("metrics", 8002))
    for option in (f"--{kind}-address=127.0.0.1", f"--{kind}-port={port}")
]
ENGINE_ALONE = ["--model-control-mode=explicit", "--load-model=tensorrt_llm"]
NO_ENDPOINTS = ["--allow-http=false", "--allow-grpc=false", "--allow-metrics=false"]
NO_POOLS = ["--pinned-memory-pool-byte-size=0", "--enable-peer-access=false"]
SPAWNING = ["TRTLLM_ORCHESTRATOR=1", "TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES=1"]


def test_four_gpus_have_a_rank_each() -> None:
    first, *others = printed("gpt2-medium-tp4")
    assert first == ["mpirun", "--allow-run-as-root", "-n", "1", *rank("0_", *ENDPOINTS)]
    assert others == [["-n", "1", *rank(f"{number}_", *ENGINE_ALONE, *NO_ENDPOINTS)] for number in (1, 2, 3)]


@pytest.mark.parametrize(("name", "gpus"), [("two-models", 4), ("draft-target", 1)])
def test_an_orchestrator_is_alone_and_leaves_memory_to_its_workers(name: str, gpus: int) -> None:
    pools = [f"--cuda-memory-pool-byte-size={gpu}:0" for gpu in range(gpus)]
    start = [*SPAWNING, "mpirun", "--allow-run-as-root", "-n", "1"]
    assert printed(name) == [[*start, *rank("0_", *ENDPOINTS, *NO_POOLS, *pools)]]


@pytest.mark.parametrize("name", ["llama3-8b-awq", "llmapi-tp4"])
def test_an_engine_on_one_gpu_and_the_llm_api_are_one_process(name: str) -> None:
    assert printed(name) == [rank("", *ENDPOINTS)]


def test_the_llm_apis_ranks_are_started_by_mpirun_where_that_is_asked_for() -> None:
    start = ["mpirun", "--allow-run-as-root", "-n", "4", "trtllm-llmapi-launch"]
    assert printed("llmapi-tp4", "--llmapi-ranks") == [[*start, *rank("", *ENDPOINTS)]]


def test_ranks_of_the_llm_api_need_its_launcher(
    tmp_path: Path, tiny_model_dir: Path, mpirun: Path, gpus: Callable[[int], Path]
) -> None:
    gpus(2)
    file = render(tmp_path, deployment(tiny_model_dir, engine="llmapi", parallelism={"tp": 2}))
    said = rejected(file, "--llmapi-ranks")
    assert "trtllm-llmapi-launch is not on PATH. Run this in TensorRT-LLM's image, which has it." in said


def test_options_reach_the_command() -> None:
    chosen = (
        "--host", "0.0.0.0", "--grpc-port", "9001", "--exit-timeout", "5", "--oversubscribe", "--", "--log-verbose=1",
    )  # fmt: skip
    first, *others = printed("gpt2-medium-tp4", *chosen)
    assert first[:3] == ["mpirun", "--allow-run-as-root", "--oversubscribe"]
    assert {"--grpc-address=0.0.0.0", "--grpc-port=9001", "--exit-timeout-secs=5", "--log-verbose=1"} <= set(first)
    assert all("--log-verbose=1" in words for words in others)


def test_workers_that_start_with_the_orchestrator_are_ranks(tmp_path: Path) -> None:
    file, place = tmp_path / "gateway.yaml", "gpu_ids: [[0]]\n"
    target, draft = (EXAMPLES / "draft-target.yaml").read_text().split("  - name: draft\n")
    ranked = [
        text.replace(place, f"{place}      participant_ids: [[{rank}]]\n") for rank, text in ((1, target), (2, draft))
    ]
    file.write_text("  - name: draft\n".join(ranked))
    done = CliRunner().invoke(app, ["launch", str(file), "--dry-run"])
    assert "TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES=0 mpirun" in done.stdout
    assert done.stdout.count("--load-model=tensorrt_llm --load-model=tensorrt_llm_draft --allow-http=false") == 2
    assert "--cuda-memory-pool-byte-size" not in done.stdout


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory, tiny_model_dir: Path) -> Path:
    """A rendered deployment on the CPU engine."""
    return render(tmp_path_factory.mktemp("small"), deployment(tiny_model_dir))


def deployment(model: Path, **more: Any) -> dict[str, Any]:
    return {"name": "one", "engine": "reference", "role": "draft", "model": {"source": str(model)}, **more}


def rejected(file: Path, *options: str | Path) -> str:
    """What is said of deployments with the repository that is rendered beside their file, or another one."""
    done = launch(file, "--repository", file.with_name("repository"), *options)
    assert done.exit_code == 2, done.output
    assert "Traceback" not in done.stderr
    return " ".join(done.stderr.split())


def test_a_port_that_is_taken(small: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        said = rejected(small, "--grpc-port", str(port))
    assert f"Triton cannot listen on 127.0.0.1 port {port} (Address already in use)." in said
    assert "choose another port with --grpc-port." in said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--grpc-port", "7", "--http-port", "7"), "Two of Triton's ports are the same."),
        (("--restart", "sometimes"), "--restart 'sometimes': write no, on-failure, or on-failure:N."),
        (("--tritonserver", "/nowhere"), "/nowhere does not exist."),
        (("--repository", "/nowhere"), "The model repository /nowhere does not exist. Render it: gateway repo FILE -o"),
        (
            ("--llmapi-ranks",),
            "--llmapi-ranks is for the LLM API over several GPUs, and these deployments do not use it.",
        ),
    ],
)
def test_options_that_cannot_be_are_refused(small: Path, options: tuple[str, ...], said: str) -> None:
    assert said in rejected(small, *options)


def test_a_repository_that_lacks_models(small: Path, tmp_path: Path, tiny_model_dir: Path) -> None:
    file = render(tmp_path, deployment(tiny_model_dir, prefix="a_"))
    assert "lacks a_tensorrt_llm." in rejected(file, "--repository", small.with_name("repository"))


def test_a_repository_that_the_review_refuses(tmp_path: Path, tiny_model_dir: Path) -> None:
    file = render(tmp_path, deployment(tiny_model_dir))
    (tmp_path / "repository" / "tensorrt_llm" / "1" / "model.py").unlink()
    assert "model.py" in rejected(file)


@pytest.mark.parametrize("name", ["my models", "o'clock", "a;b", "cost$"])
def test_a_path_that_no_stub_of_triton_starts_from(name: str, tmp_path: Path, tiny_model_dir: Path) -> None:
    folder = tmp_path / name
    folder.mkdir()
    file = render(folder, deployment(tiny_model_dir))
    said = rejected(file)
    assert f"passes paths to a shell unquoted, and {folder}/repository contains" in said
    assert "Move the repository into a folder without it." in said


def test_a_target_without_its_draft(tmp_path: Path) -> None:
    done = launch(EXAMPLES / "draft-target.yaml", "--repository", tmp_path, "--deployment", "target")
    assert done.exit_code == 2
    assert "warning: target calls tensorrt_llm_draft for its drafts, which is not among these." in done.stderr
    unknown = launch(EXAMPLES / "draft-target.yaml", "--repository", tmp_path, "--deployment", "nobody")
    assert (unknown.exit_code, "unknown deployment 'nobody'" in unknown.stderr) == (1, True)


def tensorrt(tmp_path: Path, model: Path, **more: Any) -> Path:
    return render(tmp_path, deployment(model, engine="tensorrt", engine_dir=str(tmp_path / "engine"), **more))


def test_fewer_gpus_than_ranks_no_mpirun_and_no_engine(
    tmp_path: Path, tiny_model_dir: Path, gpus: Callable[[int], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus(1)
    file = tensorrt(tmp_path, tiny_model_dir, parallelism={"tp": 2})
    said = rejected(file)
    assert "The deployments need 2 GPUs, and 1 is visible." in said
    assert "Leader mode needs mpirun, which is not on PATH." in said
    assert "/opt/tritonserver/bin/tritonserver does not exist." in said
    assert f"one: {tmp_path / 'engine'}: It does not exist. Build it with `gateway engine build`." in said
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5")
    assert "GPUs, and" not in rejected(file)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert "0 are visible (CUDA_VISIBLE_DEVICES=)." in rejected(file)


@pytest.mark.parametrize(("gpu", "said"), [(1, True), (2, False)])
def test_gpus_that_the_variable_leaves_out(
    gpu: int, said: bool, tmp_path: Path, tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = deployment(tiny_model_dir, engine="llmapi", triton={"gpu_ids": [[gpu]]}, limits={"max_seq_len": 64})
    file = render(tmp_path, made)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,2")
    found = rejected(file)
    assert (f"one: GPU {gpu} of triton.gpu_ids is not in CUDA_VISIBLE_DEVICES=0,2." in found) == said
    assert "The deployments need" not in found


def test_several_machines_are_left_to_slurm(tmp_path: Path, tiny_model_dir: Path) -> None:
    file = tensorrt(tmp_path, tiny_model_dir, parallelism={"tp": 2, "pp": 2, "nodes": 2})
    options = "--nodes=2 --ntasks=4 --ntasks-per-node=2 --kill-on-bad-exit=1"
    line = f"srun --mpi=pmix {options} sh {tmp_path}/repository/launch.sh"
    said = rejected(file)
    assert "4 ranks on 2 machines are started by Slurm, not from one machine. Submit the job of gateway repo" in said
    assert line in said
    assert line in launch(file, "--repository", tmp_path / "repository", "--dry-run").stdout


def test_a_task_of_many_is_told_that_it_is_one(
    tmp_path: Path, tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "4")
    said = rejected(tensorrt(tmp_path, tiny_model_dir, parallelism={"tp": 4}))
    assert "srun has started this 4 times, and each would start all ranks. Start it with --ntasks=1" in said
