"""A stand-in for Slurm's ``srun`` inside a job, on one machine, by its manual page.

It starts a program once for each task, with the variables that tasks have, passes SIGTERM on to all of them, and with
``--kill-on-bad-exit`` ends all when one fails. Its status is the highest of theirs, 128 added to a signal.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from types import FrameType


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name in ("nodes", "ntasks", "ntasks-per-node", "kill-on-bad-exit"):
        parser.add_argument(f"--{name}", type=int, default=0)
    for name in ("mpi", "container-image", "container-mounts"):
        parser.add_argument(f"--{name}")
    parser.add_argument("program", nargs=argparse.REMAINDER)
    return parser.parse_args()


def task_variables(given: argparse.Namespace, task: int) -> dict[str, str]:
    node, local = divmod(task, given.ntasks_per_node)
    told = {"PROCID": task, "LOCALID": local, "NODEID": node, "STEP_NUM_TASKS": given.ntasks, "NTASKS": given.ntasks}
    told["STEP_NUM_NODES"] = given.nodes
    return {f"SLURM_{name}": str(value) for name, value in told.items()} | {"STANDIN_OPTIONS": repr(vars(given))}


def status_of(process: subprocess.Popen[bytes]) -> int:
    code = process.wait()
    return 128 - code if code < 0 else code


def main() -> int:
    given = arguments()
    assert given.ntasks == given.nodes * given.ntasks_per_node, given
    tasks = [
        subprocess.Popen(given.program, env=os.environ | task_variables(given, task)) for task in range(given.ntasks)
    ]

    def forward(number: int, _frame: FrameType | None) -> None:
        for task in tasks:
            task.send_signal(number)

    signal.signal(signal.SIGTERM, forward)
    while any(task.poll() is None for task in tasks):
        if given.kill_on_bad_exit and any(task.poll() for task in tasks):
            for task in tasks:
                task.kill()
        time.sleep(0.02)
    return max(map(status_of, tasks))


if __name__ == "__main__":
    sys.exit(main())
