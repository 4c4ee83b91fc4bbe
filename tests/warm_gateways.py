"""A process that has imported the gateway, and forks a command whenever a test asks: each is spared its imports.

Those take ``gateway serve`` and each of its workers two seconds of CPU, and other commands half of one. What is forked
is the command ``gateway`` as it stands once its modules are imported; a supervisor that was forked forks its workers.
Where a test is about the imports themselves, it launches the command instead. Other programs of the tests that import
much are forked so as well. This module is the process's program too.
"""

from __future__ import annotations

import asyncio
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
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

GATEWAY = "gateway"
WORKER = "gateway.workers.worker"
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
            raise subprocess.TimeoutExpired("gateway", timeout or 0)
        return status

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Send it SIGKILL."""
        self.send_signal(signal.SIGKILL)


class WarmGateways:
    """The process that forks them. It ends with the one that made it, however that ends, and its gateways with it.

    Args:
        program: the gateway, or a module of the tests whose ``main`` is run in its place.
    """

    def __init__(self, program: str) -> None:
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, __file__, program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        atexit.register(self._process.communicate)

    @staticmethod
    @functools.cache
    def of_this_process(program: str = GATEWAY) -> WarmGateways:
        """The one that all tests of this process share, started when it is first asked for."""
        return WarmGateways(program)

    def start(
        self,
        arguments: Sequence[str | Path],
        environment: Mapping[str, str],
        *,
        stdin: str | Path = os.devnull,
        stdout: str | Path,
        stderr: str | Path | None = None,
        folder: Path | None = None,
    ) -> ForkedGateway:
        """Fork a command of the gateway.

        Args:
            arguments: those of the command ``gateway``.
            environment: all of its environment.
            stdin: file, or terminal, that it reads.
            stdout: file that its output is added to.
            stderr: file that its errors are added to; ``stdout`` by default.
            folder: that it is started in; the current one by default.
        """
        files = [str(stdin), str(stdout), str(stderr or stdout)]
        folder = folder or Path.cwd()
        asked = {"arguments": [*map(str, arguments)], "files": files, "folder": str(folder)}
        return ForkedGateway(self, self.ask({**asked, "environment": dict(environment)}))

    def run(
        self,
        arguments: Sequence[str | Path],
        environment: Mapping[str, str],
        *,
        given: bytes = b"",
        folder: Path | None = None,
        timeout: float = 60.0,
    ) -> subprocess.CompletedProcess[str]:
        """Fork a command of the gateway, and wait for its end.

        Args:
            arguments: those of the command ``gateway``.
            environment: all of its environment.
            given: what it reads.
            folder: that it is started in; the current one by default.
            timeout: seconds after which it is killed.

        Raises:
            subprocess.TimeoutExpired: it was.
        """
        with tempfile.TemporaryDirectory() as name:
            stdin, stdout, stderr = (Path(name, each) for each in ("stdin", "stdout", "stderr"))
            stdin.write_bytes(given)
            process = self.start(arguments, environment, stdin=stdin, stdout=stdout, stderr=stderr, folder=folder)
            try:
                status = process.wait(timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(timeout)
                raise
            return subprocess.CompletedProcess(["gateway", *arguments], status, stdout.read_text(), stderr.read_text())

    def ask(self, question: dict[str, Any]) -> Any:
        """Ask the process, and return its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            self._process.stdin.write(f"{json.dumps(question)}\n")
            self._process.stdin.flush()
            return json.loads(self._process.stdout.readline())


def gateway(
    *arguments: str, folder: Path | None = None, timeout: float = 60.0, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run the command ``gateway`` with these variables, and without settings that this process has for it."""
    environ = {key: value for key, value in os.environ.items() if not key.startswith("GATEWAY_")}
    return WarmGateways.of_this_process().run(arguments, environ | variables, folder=folder, timeout=timeout)


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
        flags = (os.O_RDONLY, *[os.O_WRONLY | os.O_CREAT | os.O_APPEND] * 2)
        files = [os.open(file, flag | os.O_NOCTTY, 0o666) for file, flag in zip(asked["files"], flags, strict=True)]
        pid = os.fork()
        if pid == 0:
            return {**asked, "files": files}
        for file in files:
            os.close(file)
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


class ForkedWorker:
    """A worker that its supervisor has forked; the part of `asyncio.subprocess.Process` that a supervisor uses.

    Attributes:
        pid: its process id.
        returncode: its exit status, negative for a signal; None until somebody has waited for it.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._handle = os.pidfd_open(pid)

    async def wait(self) -> int:
        """Wait for its end, and return its exit status."""
        loop, over = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._handle, over.set)
        await over.wait()
        loop.remove_reader(self._handle)
        os.close(self._handle)
        self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])  # noqa: ASYNC222 - it has ended
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)


def _fork_workers() -> None:
    """Have a supervisor in this process fork its workers, in place of starting a Python for each."""
    execute = asyncio.create_subprocess_exec

    async def start(*command: str, **options: Any) -> asyncio.subprocess.Process | ForkedWorker:
        if command[1:3] != ("-m", WORKER):
            return await execute(*command, **options)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        pid = os.fork()
        if pid == 0:
            _be_worker(command[3:], options["pass_fds"], options["env"])
        return ForkedWorker(pid)

    asyncio.create_subprocess_exec = start  # type: ignore[assignment]


def _be_worker(arguments: Sequence[str], kept: Sequence[int], environment: Mapping[str, str]) -> NoReturn:
    """Be a worker, in the middle of its supervisor's loop, to which nothing returns."""
    status = 1
    try:
        asyncio._set_running_loop(None)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        last = 2
        for handle in (*sorted(kept), os.sysconf("SC_OPEN_MAX")):
            os.closerange(last + 1, handle)
            last = handle
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.environ.clear()
        os.environ.update(environment)
        values: Any = importlib.import_module("prometheus_client.values")
        values.ValueClass = values.get_value_class()  # chosen by the environment
        status = importlib.import_module(WORKER).main(arguments)
    except Exception:  # noqa: BLE001 - as an interpreter ends
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(status)


def _be(asked: dict[str, Any], program: str) -> None:
    """Be the command that is asked for."""
    for number, file in enumerate(asked["files"]):
        os.dup2(file, number)
        os.close(file)
    # As an interpreter makes them: with nothing of the questions, and lines at once on a terminal.
    words, at_once = sys.stdin.encoding, 1 if os.isatty(1) else -1
    sys.stdin = open(0, encoding=words, errors=sys.stdin.errors, closefd=False)  # noqa: SIM115 - open to the end
    sys.stdout = open(1, "w", at_once, words, sys.stdout.errors, closefd=False)  # noqa: SIM115 - open to the end
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    time.tzset()
    sys.argv = [str(Path(sys.executable).with_name("gateway")), *asked["arguments"]]
    module, name = ("gateway_ops.cli", "app") if program == GATEWAY else (program, "main")
    if program == GATEWAY:
        _fork_workers()
    getattr(sys.modules[module], name)()  # imported before the fork


def main() -> None:
    """Import all that a gateway and its commands import while they start, or another program; then fork."""
    (program,) = sys.argv[1:]
    if program == GATEWAY:
        sys.path[0] = str(Path(sys.executable).parent)  # as the command has it
        names = ["gateway.app", "gateway.workers.supervisor", WORKER]
        names += ["gateway_ops.cli.root", "gateway_ops.local_stack.stack"]
    else:
        sys.path[0], names = str(Path(__file__).parents[1]), [program]
    for name in names:
        importlib.import_module(name)

    gc.collect()
    gc.freeze()  # a gateway does so as well, and has less to look through
    asked = _fork_as_asked()
    if asked is not None:
        _be(asked, program)


if __name__ == "__main__":
    main()
