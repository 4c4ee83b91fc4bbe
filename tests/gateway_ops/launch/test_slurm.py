"""The scripts that start ranks, as Slurm's job and as the first process of a container: ranks, environment, ends."""

from __future__ import annotations

import ast
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gateway_ops.repository.rendered_files import render, write
from tests.gateway_ops.repository.conftest import EXAMPLES, load
from tests.waiting import wait_until

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
SHIPPED = {"single-node": "gpt2-medium-tp4", "multi-node": "llama3-405b-two-nodes", "llm-api": "llmapi-tp4"}
JOB = "7007"


def written(folder: Path, name: str) -> Path:
    """The repository of an example, with its job script."""
    target = folder / "repository of a job"
    write(render(load(EXAMPLES / f"{name}.yaml"), ROOT / "triton_repo", slurm=True), target, replace=False)
    return target


def allocation(nodes: int, tasks: int, gpus: int, notes: Path, **more: str) -> dict[str, str]:
    """The environment of a batch script."""
    each = f"{tasks}(x{nodes})" if nodes > 1 else str(tasks)
    size = {"SLURM_JOB_NUM_NODES": str(nodes), "SLURM_TASKS_PER_NODE": each, "SLURM_GPUS_ON_NODE": str(gpus)}
    return {**os.environ, **size, "SLURM_JOB_ID": JOB, "NOTES": str(notes), **more}


def started(repository: Path, env: dict[str, str]) -> subprocess.Popen[str]:
    """The batch script, which sbatch runs from a copy of its own."""
    env = {"SLURM_SUBMIT_DIR": str(repository), **env}
    copy = repository.with_name("slurm_script")
    copy.write_bytes((repository / "launch.sbatch").read_bytes())
    return subprocess.Popen(
        ["bash", str(copy), "--log-verbose=1"], env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def notes_of(notes: Path, ranks: int) -> list[str]:
    wait_until(lambda: all((notes / f"pid-{rank}").exists() for rank in range(ranks)), 60)
    return [(notes / str(rank)).read_text() for rank in range(ranks)]


@pytest.mark.parametrize(("name", "nodes", "tasks"), [("gpt2-medium-tp4", 1, 4), ("llama3-405b-two-nodes", 2, 8)])
def test_each_task_is_a_rank_and_all_end_when_rank_0_has_answered(
    name: str, nodes: int, tasks: int, notes: Path, tmp_path: Path
) -> None:
    repository = written(tmp_path, name)
    region = Path("/dev/shm") / f"prefix{JOB}_3_left"
    region.write_bytes(b"")
    env = allocation(nodes, tasks, 8, notes, IMAGE="triton.sqsh", MOUNTS="/models:/models")
    with started(repository, env) as job:
        said = notes_of(notes, nodes * tasks)
        job.send_signal(signal.SIGTERM)
        out, _ = job.communicate(timeout=60)
    assert job.returncode == 0, out
    options = ast.literal_eval(re.search(r"STANDIN_OPTIONS=(.*)", said[0])[1])  # type: ignore[index]
    assert options["mpi"] == "pmix"
    assert options["container_mounts"] == f"{repository}:{repository},/models:/models"
    for rank, text in enumerate(said):
        assert f"--backend-config=python,shm-region-prefix-name=prefix{JOB}_{rank}_" in text
        assert "--log-verbose=1" in text
        assert ("--load-model=tensorrt_llm" in text) == ("--allow-grpc=false" in text) == (rank > 0)
    ends = [(notes / str(rank)).read_text() for rank in range(nodes * tasks)]
    assert "answered" in ends[0]
    assert not [text for text in ends if "heeded" in text]
    assert not region.exists()


def test_a_rank_that_dies_ends_the_job(notes: Path, tmp_path: Path) -> None:
    with started(written(tmp_path, "gpt2-medium-tp4"), allocation(1, 4, 4, notes)) as job:
        notes_of(notes, 4)
        os.kill(int((notes / "pid-2").read_text()), signal.SIGKILL)
        out, _ = job.communicate(timeout=60)
    assert job.returncode == 137, out
    assert not (notes / "ended").exists()


@pytest.mark.parametrize(
    ("size", "more", "said"),
    [
        ((1, 8, 8), {}, "this needs 2 node(s) with 8(x2) task(s), and the job has 1 node(s) with 8 task(s): "),
        ((2, 4, 8), {}, "and the job has 2 node(s) with 4(x2) task(s): sbatch --nodes=2 --ntasks-per-node=8 "),
        ((2, 8, 4), {}, "this needs 8 GPU(s) on each node; "),
        ((2, 8, 8), {"REPOSITORY": "/nowhere"}, "/nowhere holds no launch.sh: submit the job in the folder"),
    ],
)
def test_an_allocation_that_does_not_fit_is_named(
    size: tuple[int, int, int], more: dict[str, str], said: str, notes: Path, tmp_path: Path
) -> None:
    with started(written(tmp_path, "llama3-405b-two-nodes"), allocation(*size, notes, **more)) as job:
        out, _ = job.communicate(timeout=60)
    assert job.returncode == 2
    assert f"error: {said}" in out or said in out
    assert "sbatch" in out or "REPOSITORY" in out
    assert not list(notes.iterdir())


def test_outside_of_a_job_nothing_is_started(notes: Path, tmp_path: Path) -> None:
    env = {key: value for key, value in os.environ.items() if not key.startswith("SLURM_")}
    with started(written(tmp_path, "gpt2-medium-tp4"), env) as job:
        out, _ = job.communicate(timeout=60)
    assert job.returncode == 2
    assert "the job has no node(s) with no task(s)" in out


def test_the_llm_api_has_its_ranks_started(notes: Path, tmp_path: Path) -> None:
    with started(written(tmp_path, "llmapi-tp4"), allocation(1, 4, 4, notes)) as job:
        assert all(text.startswith("by trtllm-llmapi-launch\n") for text in notes_of(notes, 4))
        (notes / "ended").touch()
        out, _ = job.communicate(timeout=60)
    assert job.returncode == 0, out


def test_an_orchestrator_is_one_task_below_mpirun_and_answers_before_it_ends(notes: Path, tmp_path: Path) -> None:
    with started(written(tmp_path, "two-models"), allocation(1, 1, 4, notes)) as job:
        (text,) = notes_of(notes, 1)
        job.send_signal(signal.SIGTERM)
        out, _ = job.communicate(timeout=60)
    assert job.returncode == 0, out
    assert (notes / "mpirun").read_text().startswith("mpirun --allow-run-as-root --oversubscribe -n 1 sh ")
    assert "TRTLLM_ORCHESTRATOR=1\n" in text
    assert "--cuda-memory-pool-byte-size=3:0 --log-verbose=1" in text
    assert "answered" in (notes / "0").read_text()


@pytest.mark.parametrize("shipped", SHIPPED)
def test_the_shipped_scripts_are_those_of_the_examples(shipped: str, tmp_path: Path) -> None:
    text = (written(tmp_path, SHIPPED[shipped]) / "launch.sbatch").read_text()
    assert (ROOT / "deploy" / "slurm" / f"{shipped}.sbatch").read_text() == text


@pytest.mark.parametrize("name", sorted(path.stem for path in EXAMPLES.glob("*.yaml")))
def test_rendered_scripts_are_clean_for_shellcheck(name: str, tmp_path: Path) -> None:
    repository = written(tmp_path, name)
    scripts = [repository / "launch.sh", repository / "launch.sbatch"]
    checker = Path(sys.executable).with_name("shellcheck")
    done = subprocess.run([checker, *scripts], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout


RANKS = 4


def ranks_started(folder: Path, notes: Path, repository: Path) -> subprocess.Popen[str]:
    """The script of four ranks, once each of them runs."""
    write(render(load(EXAMPLES / "gpt2-medium-tp4.yaml"), repository), folder / "out", replace=False)
    env = {key: value for key, value in os.environ.items() if not key.startswith("SLURM_")} | {"NOTES": str(notes)}
    script = subprocess.Popen(
        ["sh", str(folder / "out" / "launch.sh"), "--grpc-port=9001"],
        env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    wait_until(lambda: all((notes / f"pid-{rank}").exists() for rank in range(RANKS)), 60)
    return script


def test_sigterm_reaches_the_rank_that_answers_and_all_end_with_it(
    notes: Path, tmp_path: Path, repository: Path
) -> None:
    with ranks_started(tmp_path, notes, repository) as script:
        script.send_signal(signal.SIGTERM)
        out, _ = script.communicate(timeout=60)
    assert script.returncode == 0, out
    said = [(notes / str(rank)).read_text() for rank in range(RANKS)]
    assert ["answered" in text for text in said] == [True, False, False, False]
    assert not [text for text in said if "heeded" in text]
    assert [text.count("--load-model=tensorrt_llm") for text in said] == [0, 1, 1, 1]
    assert all("--grpc-port=9001" in text for text in said)


def test_it_ends_with_a_rank_that_dies(notes: Path, tmp_path: Path, repository: Path) -> None:
    with ranks_started(tmp_path, notes, repository) as script:
        os.kill(int((notes / "pid-3").read_text()), signal.SIGKILL)
        out, _ = script.communicate(timeout=60)
    assert script.returncode == 137, out


def test_an_mpirun_that_tells_no_rank_is_named(notes: Path, tmp_path: Path, repository: Path, programs) -> None:
    programs("mpirun", 'while [ "$1" != sh ]; do shift; done; exec "$@"')
    write(render(load(EXAMPLES / "gpt2-medium-tp4.yaml"), repository), tmp_path / "out", replace=False)
    done = subprocess.run(
        ["sh", tmp_path / "out" / "launch.sh"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "mpirun has set no OMPI_COMM_WORLD_RANK: use the mpirun of Open MPI" in done.stderr
