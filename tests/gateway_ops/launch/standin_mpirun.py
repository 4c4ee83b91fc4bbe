"""A stand-in for Open MPI's ``mpirun`` on one machine, by its manual page (4.1) and by what 5.0.11 was seen to do.

It starts the program of each part of its command line, with the variables of its rank. When one fails, by its status
or a signal, it ends all others, by SIGTERM and soon by SIGKILL, and answers with that status, 128 added to a signal.
SIGTERM of its own ends all of them in the same way.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from types import FrameType

KILL_AFTER_S = 0.5


def parts(words: list[str]) -> list[list[str]]:
    """The programs of the ranks: ``[options] -n 2 PROGRAM ... : -n 1 PROGRAM ...``."""
    found: list[list[str]] = [[]]
    for word in words:
        if word == ":":
            found.append([])
        else:
            found[-1].append(word)
    for part in found:
        while part[0] in ("--allow-run-as-root", "--oversubscribe"):
            part.pop(0)
        assert part[0] == "-n", part
    return [part[2:] for part in found for _ in range(int(part[1]))]


def end(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + KILL_AFTER_S
    while time.monotonic() < deadline and any(process.poll() is None for process in processes):
        time.sleep(0.02)
    for process in processes:
        process.kill()
        process.wait()


def main() -> int:
    asked: list[int] = []

    def take(number: int, _frame: FrameType | None) -> None:
        asked.append(number)

    signal.signal(signal.SIGTERM, take)
    programs = parts(sys.argv[1:])
    size = {"OMPI_COMM_WORLD_SIZE": str(len(programs))}
    processes = [
        subprocess.Popen(
            program,
            env=os.environ | size | {"OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_LOCAL_RANK": str(rank)},
        )
        for rank, program in enumerate(programs)
    ]
    while not asked:
        states = [process.poll() for process in processes]
        failed = [state for state in states if state]
        if failed:
            end(processes)
            return 128 - failed[0] if failed[0] < 0 else failed[0]
        if all(state == 0 for state in states):
            return 0
        time.sleep(0.02)
    end(processes)
    return 1


if __name__ == "__main__":
    sys.exit(main())
