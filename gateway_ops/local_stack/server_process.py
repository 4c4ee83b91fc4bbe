"""Starts a tritonserver by any command, names and watches its process, and sweeps up behind it.

Whatever the command starts, including ranks of ``mpirun`` and their workers, carries the server's name in its
environment, so that neither such a process nor its shared memory outlives the process that started the server.
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
    """The options that every tritonserver here is started with.

    Args:
        name: of the server; its stubs carry it in the names of their regions of shared memory.
        repository: the model repository.
        exit_timeout_s: seconds that Triton waits for requests in flight after SIGTERM.
        rank: among several of one name, whose regions must not be shared; None where it is alone.
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
    """One run of a server: its process and everything that it starts.

    It is killed with all of that when this Python process ends, however it ends, and when the object is collected.

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
            command: the words, with the name in the options.
            env: the environment.
            output: takes standard output and error.

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
        """The pipe with its output, where ``subprocess.PIPE`` was asked for."""
        return self._process.stdout if self._process is not None else None

    @property
    def pid(self) -> int | None:
        """Process id; None when it does not run."""
        return self._process.pid if self._process is not None and self.running else None

    @property
    def running(self) -> bool:
        """Whether the process is alive."""
        return self._process is not None and self._process.poll() is None

    @property
    def status(self) -> int | None:
        """Exit status, negative for a signal; None while it runs and before its start."""
        return self._process.poll() if self._process is not None else None

    @property
    def ending(self) -> str:
        """The end of the process, worded to follow its name in a sentence; empty while it runs or before a start."""
        status = self.status
        if status is None:
            return ""
        return f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"

    def terminate(self) -> None:
        """Send it SIGTERM; does nothing when it has ended."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it and all that it started with SIGKILL, as a crash would, and wait until nothing is left."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        if self._sweeper is not None:
            self._sweeper.close()
            self._sweeper = None
