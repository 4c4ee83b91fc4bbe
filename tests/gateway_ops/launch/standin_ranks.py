"""Stands in for Slurm's ``srun`` inside a job and for Open MPI's ``mpirun``, on one machine, by their manual pages.

Started as ``standin_ranks.py srun|mpirun WORDS...``. Each starts the programs of its ranks with the variables that
they have. ``srun`` passes SIGTERM on, with ``--kill-on-bad-exit`` ends all when one fails, and has the highest of their
statuses. ``mpirun`` (4.1, and what 5.0.11 was seen to do) ends all when one fails, by SIGTERM and soon by SIGKILL, and
has that status; SIGTERM of its own ends all of them in the same way. A signal is a status with 128 added.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time

KILL_AFTER_S = 0.5
Rank = tuple[list[str], dict[str, str]]


def of_srun(words: list[str]) -> tuple[list[Rank], bool]:
    """Programs with their variables, and whether one that fails ends the others."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name in ("nodes", "ntasks", "ntasks-per-node", "kill-on-bad-exit"):
        parser.add_argument(f"--{name}", type=int, default=0)
    for name in ("mpi", "container-image", "container-mounts"):
        parser.add_argument(f"--{name}")
    parser.add_argument("program", nargs=argparse.REMAINDER)
    given = parser.parse_args(words)
    assert given.ntasks == given.nodes * given.ntasks_per_node, given
    size = {"STEP_NUM_TASKS": given.ntasks, "NTASKS": given.ntasks, "STEP_NUM_NODES": given.nodes}
    ranks = []
    for task in range(given.ntasks):
        node, local = divmod(task, given.ntasks_per_node)
        told = size | {"PROCID": task, "LOCALID": local, "NODEID": node}
        variables = {f"SLURM_{name}": str(value) for name, value in told.items()}
        ranks.append((given.program, variables | {"STANDIN_OPTIONS": repr(vars(given))}))
    return ranks, bool(given.kill_on_bad_exit)


def of_mpirun(words: list[str]) -> tuple[list[Rank], bool]:
    """The same of ``[options] -n 2 PROGRAM ... : -n 1 PROGRAM ...``."""
    programs: list[list[str]] = []
    while words:
        part, words = (words[: words.index(":")], words[words.index(":") + 1 :]) if ":" in words else (words, [])
        part = [word for word in part if word not in ("--allow-run-as-root", "--oversubscribe")]
        assert part[0] == "-n", part
        programs += [part[2:]] * int(part[1])
    size = {"OMPI_COMM_WORLD_SIZE": str(len(programs))}
    names = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK")
    return [(program, size | dict.fromkeys(names, str(rank))) for rank, program in enumerate(programs)], True


def main() -> int:
    """Be the program that the first word names."""
    is_srun = sys.argv[1] == "srun"
    ranks, ends_all = (of_srun if is_srun else of_mpirun)(sys.argv[2:])
    processes = [subprocess.Popen(program, env=os.environ | variables) for program, variables in ranks]
    asked: list[int] = []
    end = (lambda *_: terminate(processes)) if is_srun else (lambda *_: asked.append(1))
    signal.signal(signal.SIGTERM, end)
    while not asked and any(process.poll() is None for process in processes):
        if ends_all and any(process.poll() for process in processes):
            break
        time.sleep(0.02)
    statuses = asked or [process.returncode for process in processes if process.returncode]
    if not is_srun:
        terminate(processes)
        deadline = time.monotonic() + KILL_AFTER_S
        while time.monotonic() < deadline and any(process.poll() is None for process in processes):
            time.sleep(0.02)
    for process in processes:
        process.kill()
        process.wait()
    if is_srun:
        statuses = sorted((status_of(process.returncode) for process in processes), reverse=True)
    return status_of(statuses[0]) if statuses else 0


def terminate(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.terminate()


def status_of(code: int) -> int:
    return 128 - code if code < 0 else code


if __name__ == "__main__":
    sys.exit(main())
