"""A process that has imported the gateway, and forks a gateway whenever a test asks: each is spared two seconds of CPU.

What is forked is the command ``gateway serve`` as it stands once its modules are imported. Where a test is about the
imports themselves, it launches the command instead. This module is the process's program too.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_LAST_S = 5.0  # that gateways have to end when the tests' process is gone


class ForkedGateway:
    """A gateway that was forked; the part of `subprocess.Popen` that tests use.

    Attributes:
        pid: its process id.
    """

    def __init__(self, parent: WarmGateways, pid: int) -> None:
        self.pid = pid
        self._parent = parent
        self._status: int | None = None

    def poll(self) -> int | None:
        """Its exit status, negative for a signal; None while it runs."""
        if self._status is None:
            self._status = self._parent.ask({"ended": self.pid})
        return self._status

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end, and return its exit status.

        Raises:
            subprocess.TimeoutExpired: it runs on.
        """
        if self.poll() is None:
            handle = os.pidfd_open(self.pid)
            try:
                waiting = select.poll()
                waiting.register(handle, select.POLLIN)
                waiting.poll(None if timeout is None else timeout * 1000)
            finally:
                os.close(handle)
        status = self.poll()
        if status is None:
            raise subprocess.TimeoutExpired("gateway serve", timeout or 0)
        return status

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Send it SIGKILL."""
        self.send_signal(signal.SIGKILL)


class WarmGateways:
    """The process that forks them. It ends with the one that made it, however that ends, and its gateways with it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        atexit.register(self._process.communicate)

    @staticmethod
    @functools.cache
    def of_this_process() -> WarmGateways:
        """The one that all tests of this process share, started when it is first asked for."""
        return WarmGateways()

    def start(self, log: Path, environment: Mapping[str, str]) -> ForkedGateway:
        """Fork ``gateway serve``.

        Args:
            log: file that its output is added to.
            environment: all of its environment.
        """
        asked = {"log": str(log), "folder": str(Path.cwd()), "environment": dict(environment)}
        return ForkedGateway(self, self.ask(asked))

    def ask(self, question: dict[str, Any]) -> Any:
        """Ask the process, and return its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            self._process.stdin.write(f"{json.dumps(question)}\n")
            self._process.stdin.flush()
            return json.loads(self._process.stdout.readline())


def _fork_as_asked() -> dict[str, Any] | None:
    """Answer questions until there are no more; in a process that was forked: return what it was asked to be."""
    gateways: set[int] = set()
    for line in sys.stdin:
        asked = json.loads(line)
        if "ended" in asked:
            pid, status = os.waitpid(asked["ended"], os.WNOHANG)
            gateways.discard(pid)
            _answer(os.waitstatus_to_exitcode(status) if pid else None)
            continue
        pid = os.fork()
        if pid == 0:
            return dict(asked)
        gateways.add(pid)
        _answer(pid)
    _end(gateways)
    return None


def _answer(value: int | None) -> None:
    sys.stdout.write(f"{json.dumps(value)}\n")
    sys.stdout.flush()


def _end(gateways: set[int]) -> None:
    until = time.monotonic() + _LAST_S
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in gateways:
            os.kill(pid, number)
        while gateways and time.monotonic() < until:
            with contextlib.suppress(ChildProcessError):
                gateways -= {os.waitpid(-1, os.WNOHANG)[0]}
            time.sleep(0.02)


def _serve(asked: dict[str, Any]) -> None:
    """Be ``gateway serve``."""
    from gateway_ops.cli import app  # noqa: PLC0415 - imported before the fork

    nothing = os.open(os.devnull, os.O_RDONLY)
    log = os.open(asked["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    for file, number in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(file, number)
        os.set_inheritable(number, True)
    os.close(nothing)
    os.close(log)
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    time.tzset()
    sys.argv = ["gateway", "serve"]
    app()


def main() -> None:
    """Import all that a gateway imports while it starts; then fork."""
    sys.path[0] = str(Path(sys.executable).parent)  # as the command has it
    for name in ("gateway.app", "gateway.workers.supervisor", "gateway_ops.cli.root"):
        importlib.import_module(name)

    gc.collect()
    gc.freeze()  # a gateway does so as well, and has less to look through
    asked = _fork_as_asked()
    if asked is not None:
        _serve(asked)


if __name__ == "__main__":
    main()
