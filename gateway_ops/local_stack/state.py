"""The running stacks of this machine: a folder for each gateway port, with a lock, a state file and logs."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from gateway_ops.local_stack import LocalStackError
from gateway_ops.local_stack.cache import cache_dir

_POLL_S: Final = 0.05
_START_TIME_FIELD: Final = 19  # of /proc/PID/stat, counted after the command name (proc(5): field 22)


@dataclass(frozen=True, slots=True)
class Process:
    """The identity of a process, which a later process with the same id does not have.

    Attributes:
        pid: process id.
        started: boot id of the machine and start time in clock ticks after boot.
    """

    pid: int
    started: str

    @staticmethod
    def of(pid: int) -> Process:
        """Identify a running process.

        Raises:
            ProcessLookupError: no process has this id.
        """
        started = _started(pid)
        if started is None:
            raise ProcessLookupError(pid)
        return Process(pid, started)

    @property
    def alive(self) -> bool:
        """Tell whether this process still runs."""
        return _started(self.pid) == self.started


@dataclass(frozen=True, slots=True)
class RunState:
    """The content of the state file.

    Attributes:
        supervisor: the process of ``gateway up``, which stops all others when it gets SIGTERM.
        ready: whether the gateway responds with its model.
        url: base URL of the gateway, without ``/v1``.
        model: name of the served model.
        triton_grpc: host:port of Triton's gRPC endpoint, empty before it is known.
        triton_http: URL of Triton's HTTP endpoint, empty before it is known.
        triton_metrics: URL of Triton's metrics, empty before it is known.
        tokenizer: the model's folder; empty for a repository that brings its own models.
        max_seq_len: context length of the model; 0 for a repository that brings its own models.
        embedding: name of the served model for embeddings; empty without one.
    """

    supervisor: Process
    ready: bool
    url: str
    model: str
    triton_grpc: str = ""
    triton_http: str = ""
    triton_metrics: str = ""
    tokenizer: str = ""
    max_seq_len: int = 0
    embedding: str = ""


class RunFolder:
    """The folder of the deployment on one gateway port.

    Args:
        port: the gateway's port.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self.path = cache_dir() / "run" / str(port)

    def log(self, name: str) -> Path:
        """The path of a log file, such as ``triton`` or ``gateway``."""
        return self.path / f"{name}.log"

    @contextmanager
    def claim(self) -> Iterator[None]:
        """Lock this port while the context is open, or until this process dies.

        Raises:
            LocalStackError: another ``gateway up`` has the lock.
        """
        self._make()
        with (self.path / "lock").open("a") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise LocalStackError(
                    f"A gateway is already up on port {self.port}: "
                    f"stop it with: gateway down --port {self.port}; or choose another port with --port."
                ) from None
            try:
                yield
            finally:
                self._state_file.unlink(missing_ok=True)

    def write(self, state: RunState) -> None:
        """Replace the state file, in one step for its readers."""
        self._make()
        fresh = self.path / "state.json.new"
        fresh.write_text(json.dumps(asdict(state), indent=2) + "\n", encoding="utf-8")
        fresh.replace(self._state_file)

    def read(self) -> RunState | None:
        """Read the state of a running stack; None without one, even if an old file is left."""
        try:
            fields = json.loads(self._state_file.read_text(encoding="utf-8"))
            state = RunState(**{**fields, "supervisor": Process(**fields["supervisor"])})
        except (OSError, ValueError, TypeError, KeyError):
            return None
        return state if state.supervisor.alive else None

    def stop(self, deadline_s: float) -> bool:
        """Stop the deployment and wait for its end.

        Args:
            deadline_s: seconds before it is killed (its children end with it).

        Returns:
            False without a running stack.
        """
        state = self.read()
        if state is None:
            return False
        stop_process(state.supervisor, deadline_s)
        return True

    @property
    def _state_file(self) -> Path:
        return self.path / "state.json"

    def _make(self) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LocalStackError(
                f"Cannot write to {self.path} ({error.strerror}): set GATEWAY_CACHE_DIR to choose another place."
            ) from error


def stop_process(process: Process, deadline_s: float) -> None:
    """Stop a process: SIGTERM, then SIGKILL after the deadline; returns when it has ended.

    Args:
        process: the process; nothing happens when it no longer runs.
        deadline_s: seconds between the two.
    """
    for number in (signal.SIGTERM, signal.SIGKILL):
        if not process.alive:
            return
        os.kill(process.pid, number)
        end = time.monotonic() + deadline_s
        while process.alive and time.monotonic() < end:
            time.sleep(_POLL_S)


def _started(pid: int) -> str | None:
    try:
        # The command name is in brackets and may hold anything, brackets too.
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (FileNotFoundError, ProcessLookupError):
        return None
    if fields[0] in ("Z", "X"):  # ended, and its parent has not looked yet
        return None
    return f"{boot} {fields[_START_TIME_FIELD]}"
