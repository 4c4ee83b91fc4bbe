"""``launch.sh`` on one machine without Slurm, as the first process of a container: its ranks, and their ends."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from gateway_ops.repository.rendered_files import render, write
from tests.gateway_ops.repository.conftest import EXAMPLES, load
from tests.waiting import wait_until

RANKS = 4


def started(folder: Path, notes: Path, repository: Path) -> subprocess.Popen[str]:
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
    with started(tmp_path, notes, repository) as script:
        script.send_signal(signal.SIGTERM)
        out, _ = script.communicate(timeout=60)
    assert script.returncode == 0, out
    said = [(notes / str(rank)).read_text() for rank in range(RANKS)]
    assert ["answered" in text for text in said] == [True, False, False, False]
    assert not [text for text in said if "heeded" in text]
    assert [text.count("--load-model=tensorrt_llm") for text in said] == [0, 1, 1, 1]
    assert all("--grpc-port=9001" in text for text in said)


def test_it_ends_with_a_rank_that_dies(notes: Path, tmp_path: Path, repository: Path) -> None:
    with started(tmp_path, notes, repository) as script:
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
