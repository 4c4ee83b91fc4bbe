"""Runs a tritonserver by any command, watches its process, and removes what it leaves.

All processes of the command, including ranks of ``mpirun`` and their workers, have the server's name in their
environment, so that no such process and no shared memory outlives the process that started the server.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Final

from gateway_ops.local_stack.sweeper import NAME_VARIABLE, Sweeper, new_server_name, sweep_stale

REGIONS: Final = "--backend-config=python,shm-region-prefix-name="


def server_arguments(name: str, repository: Path | str, *, exit_timeout_s: int, rank: int | None = None) -> list[str]:
    """The options with which every tritonserver is started.

    Args:
        name: name of the server, which its stubs have in the names of their regions of shared memory.
        repository: the model repository.
        exit_timeout_s: seconds that Triton waits for requests in flight after SIGTERM.
        rank: rank among servers of one name, whose regions must not be shared; None for a single server.
    """
    prefix = f"{name}_" if rank is None else f"{name}_{rank}_"
    return [
        f"--id={name}",
        f"--model-repository={repository}",
        f"{REGIONS}{prefix}",
        "--disable-auto-complete-config",
        f"--exit-timeout-secs={exit_timeout_s}",
    ]


class ServerProcess:
    """One run of a server: its process and all processes that it starts.

    They are killed when this Python process ends, however it ends, and when the object is collected.

    Args:
        name: made up when not given; it must be in no other process's command line.
    """

    def __init__(self, name: str | None = None) -> None:
        sweep_stale()
        self.name = name or new_server_name()
        self._process: subprocess.Popen[bytes] | None = None
        self._sweeper: Sweeper | None = None

    def start(self, command: Sequence[str], env: Mapping[str, str], output: IO[bytes] | int) -> None:
        """Start the process and return immediately.

        Args:
            command: the command, with the name in its options.
            env: the environment.
            output: file for standard output and error.

        Raises:
            OSError: the command cannot be run.
        """
        self._sweeper = Sweeper(self.name)
        self._process = subprocess.Popen(  # noqa: S603 - the server of an installation, or what starts its ranks
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**env, NAME_VARIABLE: self.name},
            start_new_session=True,  # a terminal's Ctrl-C reaches only the process that started it
        )

    @property
    def output(self) -> IO[bytes] | None:
        """The pipe with the output, if the server was started with ``subprocess.PIPE``."""
        return self._process.stdout if self._process is not None else None

    @property
    def pid(self) -> int | None:
        """The process id; None when the server does not run."""
        return self._process.pid if self._process is not None and self.running else None

    @property
    def running(self) -> bool:
        """Whether the process is alive."""
        return self._process is not None and self._process.poll() is None

    @property
    def status(self) -> int | None:
        """The exit status, negative for a signal; None while the server runs and before its start."""
        return self._process.poll() if self._process is not None else None

    @property
    def ending(self) -> str:
        """The way the process ended, as a phrase after its name; empty while it runs."""
        status = self.status
        if status is None:
            return ""
        return f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"

    def terminate(self) -> None:
        """Send SIGTERM, unless the process has ended."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill all processes of the server with SIGKILL, as a crash would, and wait until they have ended."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        if self._sweeper is not None:
            self._sweeper.close()
            self._sweeper = None
