"""Supervises a launch: starts, waits, watches, ends, and restarts by the policy."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Final

from gateway_ops.launch.commands import LaunchPorts
from gateway_ops.launch.output import PipeCopier, open_log
from gateway_ops.local_stack.process_tree import arguments, descendants
from gateway_ops.local_stack.server_process import REGIONS, ServerProcess
from gateway_ops.local_stack.server_watch import RestartPolicy, ServerWatch
from gateway_ops.local_stack.triton_http import TritonHttp
from gateway_ops.local_stack.tritonserver import STUMBLED, UNLOADING, decisive_log_lines

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

STUB_DIED: Final = 3
NOT_READY: Final = 4
HANGS: Final = 5

_POLL_S: Final = 0.1
_STUMBLES: Final = 4
_UNLOAD_S: Final = 10.0  # beyond Triton's own exit timeout, for its last steps
_RANKS_S: Final = 5.0  # for the other ranks, once rank 0 has ended


@dataclass(frozen=True, slots=True)
class LaunchJob:
    """The processes to keep running.

    Attributes:
        command: makes the command for the name of a server.
        env: its environment.
        ports: ports of rank 0.
        models: Triton models that must become ready.
        ready_timeout_s: most seconds until they are ready.
        exit_timeout_s: most seconds until Triton has ended.
        log_dir: folder for its output; None for standard error.
        restart: the policy of restarts.
    """

    command: Callable[[str], Sequence[str]]
    env: Mapping[str, str]
    ports: LaunchPorts
    models: Sequence[str]
    ready_timeout_s: float
    exit_timeout_s: int
    log_dir: Path | None = None
    restart: RestartPolicy = field(default_factory=RestartPolicy)


@dataclass(frozen=True, slots=True)
class _End:
    """The end of one run: the exit status for it, and how long it was ready (None: never)."""

    status: int
    ready_s: float | None = None
    stumbled: bool = False


class JobSupervisor:
    """Runs a job until it ends without a restart.

    Args:
        job: the job.
        tell: takes a line for the operator.
    """

    def __init__(self, job: LaunchJob, tell: Callable[[str], None]) -> None:
        self._job, self._tell = job, tell
        self._signals: list[int] = []

    def run(self) -> int:
        """Run the job; handles signals until it returns.

        Returns:
            The exit status for the command; docs/how-to/launch.md has the table.
        """
        before = {number: signal.signal(number, self._take) for number in SIGNALS}
        try:
            return self._keep_running()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _take(self, number: int, _frame: FrameType | None) -> None:
        self._signals.append(number)

    def _keep_running(self) -> int:
        restarts = stumbles = 0
        served = False
        while True:
            end = self._run_once()
            served = served or end.ready_s is not None
            if self._signals or end.status == 0:
                return end.status
            if end.stumbled and stumbles < _STUMBLES:
                stumbles += 1
                self._tell("Triton failed by a known race condition during startup; starting again")
                continue
            if end.ready_s is not None and end.ready_s >= self._job.restart.calm_s:
                restarts = 0
            if not served or restarts >= self._job.restart.most:
                return end.status
            wait_s = self._job.restart.wait_s(restarts)
            restarts += 1
            self._tell(f"starting again in {wait_s:g} s ({restarts} of {self._job.restart.most})")
            if not self._pause(wait_s):
                return end.status

    def _pause(self, seconds: float) -> bool:
        """Wait; False when a signal came."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self._signals:
            time.sleep(_POLL_S)
        return not self._signals

    def _run_once(self) -> _End:
        with open_log(self._job.log_dir) as log:
            server, output = ServerProcess(), None
            try:
                server.start(self._job.command(server.name), self._job.env, subprocess.PIPE)
                assert server.output is not None  # noqa: S101 - a pipe was asked for
                output = PipeCopier(server.output, log)
                return self._serve(server, output)
            finally:
                server.kill()
                if output is not None:
                    output.close()

    def _serve(self, server: ServerProcess, output: PipeCopier) -> _End:
        end = self._wait_ready(server, output)
        if end is not None:
            return end
        ports, began = self._job.ports, time.monotonic()
        watch = ServerWatch(TritonHttp(ports.connect_host, ports.http), server.pid)
        self._tell(
            f"ready: {', '.join(self._job.models)} at {ports.host}: "
            f"gRPC {ports.grpc}, HTTP {ports.http}, metrics {ports.metrics}"
        )
        output.forget()  # harmless complaints of the start do not explain a later death
        while server.running:
            if self._signals:
                return _End(self._end_in_order(server, output), time.monotonic() - began)
            trouble = None if server.pid is None else watch.trouble(server.pid)
            if trouble is not None:
                self._tell(f"tritonserver {trouble}; ending it")
                if trouble.startswith("hangs"):
                    server.kill()
                    return _End(HANGS, time.monotonic() - began)
                self._end_without_stub(server, output)
                return _End(STUB_DIED, time.monotonic() - began)
            time.sleep(_POLL_S)
        self._say_end(server, output.tail)
        return _End(_exit_status(server), time.monotonic() - began)

    def _wait_ready(self, server: ServerProcess, output: PipeCopier) -> _End | None:
        """Wait for the models; how it ended before, None when they are ready."""
        deadline = time.monotonic() + self._job.ready_timeout_s
        http = TritonHttp(self._job.ports.connect_host, self._job.ports.http)
        waiting = list(self._job.models)
        while server.running:
            if self._signals:
                self._tell("stopped before it was ready")
                return _End(128 + self._signals[-1])
            if http.is_named(server.name):
                waiting = [model for model in waiting if not http.model_ready(model)]
                if not waiting:
                    return None
            if time.monotonic() > deadline:
                self._tell(f"not ready after {self._job.ready_timeout_s:g} s: {', '.join(waiting)}")
                return _End(NOT_READY)
            time.sleep(_POLL_S)
        server.kill()  # the rest of its output comes when nothing of it is left
        output.close()
        self._say_end(server, output.tail, " while it was starting")
        return _End(_exit_status(server) or 1, stumbled=STUMBLED in output.tail)

    def _say_end(self, server: ServerProcess, log: str, when: str = "") -> None:
        lines = "".join(f"\n  {line}" for line in decisive_log_lines(log)) if server.status else ""
        self._tell(f"tritonserver {server.ending}{when}{lines}")

    def _end_in_order(self, server: ServerProcess, output: PipeCopier) -> int:
        """End it as Triton ends: requests in flight are completed first. A second signal hurries."""
        self._tell(f"stopping: requests in flight have {self._job.exit_timeout_s} s; a second signal ends them")
        leader = self._ask_to_end(server)
        if not self._wait_gone(server, leader, self._job.exit_timeout_s + _UNLOAD_S):
            self._tell("killed before its graceful shutdown ended")
            return 128 + (self._signals[-1] if len(self._signals) > 1 else signal.SIGKILL)
        if leader != server.pid and not self._wait_gone(server, server.pid, _RANKS_S):
            self._tell("rank 0 has ended; ending the other ranks")
            server.terminate()
            self._wait_gone(server, server.pid, _RANKS_S)
            return 0
        if server.status:
            server.kill()  # the rest of its output comes when nothing of it is left
            output.close()
            self._say_end(server, output.tail)
        return _exit_status(server)

    def _wait_gone(self, server: ServerProcess, pid: int | None, seconds: float) -> bool:
        """Wait for the end of a process; False when time ran out or another signal came."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and len(self._signals) < 2:
            if not server.running or not Path(f"/proc/{pid}").exists():
                return True
            time.sleep(_POLL_S)
        return False

    def _end_without_stub(self, server: ServerProcess, output: PipeCopier) -> None:
        """End a server that cannot unload a model: it would wait in vain once its requests are completed."""
        self._ask_to_end(server)
        end = time.monotonic() + self._job.exit_timeout_s
        while server.running and time.monotonic() < end and UNLOADING not in output.tail and not self._signals:
            time.sleep(_POLL_S)

    def _ask_to_end(self, server: ServerProcess) -> int | None:
        """Send SIGTERM to the tritonserver that serves clients: after one of its own mpirun kills all ranks soon."""
        leader = self._leader(server)
        if leader is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(leader, signal.SIGTERM)
        return leader

    def _leader(self, server: ServerProcess) -> int | None:
        """The tritonserver that serves clients: alone, or rank 0 of those below mpirun; the innermost, if wrapped."""
        top = server.pid
        if top is None:
            return None
        wanted = ([f"{REGIONS}{server.name}_"], [f"{REGIONS}{server.name}_0_"])
        below = [pid for pid in descendants(top) if [w for w in arguments(pid) if w.startswith(REGIONS)] in wanted]
        return max(below, key=lambda pid: sum(pid in descendants(one) for one in below), default=top)


def _exit_status(server: ServerProcess) -> int:
    status = server.status or 0
    return 128 - status if status < 0 else status
