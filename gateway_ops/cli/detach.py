"""``gateway up --detach``: runs the command again in a session of its own, and waits until it is ready."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Final, TextIO

from gateway_ops.cli.console import ERROR_MARK, Progress
from gateway_ops.local_stack import LocalStackError
from gateway_ops.local_stack.state import Process, RunFolder, RunState, stop_process

_POLL_S: Final = 0.1
_STOP_S: Final = 45.0


def run_detached(arguments: Sequence[str], folder: RunFolder, progress: Progress) -> RunState:
    """Start ``gateway up`` in the background and return when it is ready.

    Args:
        arguments: arguments of ``gateway up``, without ``--detach``.
        folder: the run folder of their port.
        progress: gets the lines that the background process prints.

    Returns:
        The state that the background process wrote.

    Raises:
        LocalStackError: the background process ended before it was ready; the message is its own.
        KeyboardInterrupt: interrupted meanwhile; the background process is stopped.
    """
    with folder.claim():  # a clear error when a stack is up; the background process makes its own claim
        log_path = folder.log("up")
        with log_path.open("w", encoding="utf-8") as log:
            child = subprocess.Popen(  # noqa: S603 - the gateway's own command, no shell
                [sys.executable, "-m", "gateway_ops.cli", "up", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
    try:
        with log_path.open(encoding="utf-8", errors="replace") as log:
            return _wait(child, folder, progress, log)
    except KeyboardInterrupt:
        if child.poll() is None:
            stop_process(Process.of(child.pid), _STOP_S)
        raise


def _wait(child: subprocess.Popen[bytes], folder: RunFolder, progress: Progress, log: TextIO) -> RunState:
    said = ""
    while True:
        ended = child.poll() is not None  # before the last read, so that nothing it said is missed
        state = folder.read()
        if state is not None and state.ready and state.supervisor.pid == child.pid:
            return state
        new = log.read()
        said += new
        message = said.partition(ERROR_MARK)[2]
        if ended:
            raise LocalStackError(message.strip() or f"The command ended before it was ready; its output: {log.name}")
        if not message:
            for line in new.splitlines():
                progress.step(line)
        time.sleep(_POLL_S)
