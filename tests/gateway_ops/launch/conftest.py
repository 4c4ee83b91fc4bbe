"""Programs that stand for those of a cluster and of a machine with GPUs, on PATH."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway_ops.local_stack.triton_installation import find_tritonserver, prepare_backend_directory, stub_environment

STANDIN = f"{sys.executable} {Path(__file__).with_name('standin_ranks.py')}"


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    """Writes a program, as a shell has it, into a folder that is first on PATH; its path."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def write(name: str, commands: str) -> Path:
        path = folder / name
        path.write_text(f"#!/bin/sh\n{commands}\n")
        path.chmod(0o755)
        return path

    return write


@pytest.fixture
def gpus(programs: Callable[[str, str], Path]) -> Callable[[int], Path]:
    """Makes so many GPUs, as far as nvidia-smi says."""
    return lambda count: programs(
        "nvidia-smi", "\n".join(f"echo 'GPU {i}: NVIDIA H200 (UUID: GPU-{i})'" for i in range(count))
    )


@pytest.fixture
def mpirun(programs: Callable[[str, str], Path]) -> Path:
    """The stand-in for Open MPI's mpirun."""
    return programs("mpirun", f'exec {STANDIN} mpirun "$@"')


@pytest.fixture
def tritonserver(programs: Callable[[str, str], Path]) -> Path:
    """The real tritonserver, found by its name as in NVIDIA's image."""
    installation = find_tritonserver()
    env = stub_environment(os.environ)
    exported = [f"export {key}={shlex.quote(env[key])}" for key in ("PATH", "LD_LIBRARY_PATH") if key in env]
    backends = prepare_backend_directory(installation)
    return programs(
        "tritonserver", "\n".join([*exported, f'exec {installation.binary} "$@" --backend-directory={backends}'])
    )


# What stands for Triton: it notes its rank and its options, and has TensorRT-LLM's manners. Rank 0 ends by SIGTERM once
# it has answered; the others do not heed it, and end with rank 0.
TRITON = """\
rank=${OMPI_COMM_WORLD_RANK:-$SLURM_PROCID}
exec >>"$NOTES/$rank" 2>&1
echo "$@"
env | grep -e ^TRTLLM -e ^STANDIN_OPTIONS || true
if [ "$rank" = 0 ]; then
    trap 'echo answered; touch "$NOTES/ended"; exit 0' TERM
else
    trap 'echo heeded SIGTERM; exit 15' TERM
fi
echo $$ >"$NOTES/pid-$rank"
while [ ! -e "$NOTES/ended" ]; do sleep 0.05; done
"""


@pytest.fixture
def notes(programs: Callable[[str, str], Path], tmp_path: Path) -> Path:
    """The programs of a cluster, on PATH; the folder where ranks leave notes."""
    programs("srun", f'exec {STANDIN} srun "$@"')
    programs("tritonserver", TRITON)
    programs("trtllm-llmapi-launch", 'echo "by trtllm-llmapi-launch" >>"$NOTES/$SLURM_PROCID"\nexec "$@"')
    programs("mpirun", f'echo "mpirun $*" >>"$NOTES/mpirun"\nexec {STANDIN} mpirun "$@"')
    (tmp_path / "notes").mkdir()
    return tmp_path / "notes"
