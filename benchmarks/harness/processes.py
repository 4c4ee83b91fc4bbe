"""The processes of a measurement: the synthetic Triton and the gateways in front of it."""

from __future__ import annotations

import http.client
import os
import resource
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TypeVar

ROOT = Path(__file__).parents[2]
BUILT = ROOT / "build" / "bench"
_SCHEDULER = 2  # CPUCLOCK_SCHED of the kernel: the run time of all threads of a process, also of those that ended
_START_S = 60.0
_STOP_S = 20.0
Self = TypeVar("Self", bound="Child")


class BenchmarkError(Exception):
    """A measurement that is impossible; the message says why."""


def free_port() -> int:
    """A free TCP port of 127.0.0.1."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def raise_file_limit() -> None:
    """Let this process, and those that it starts, open as many files as the system permits."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class Child:
    """A process with a log file; a context manager that ends it.

    Attributes:
        port: its port.
        log: the file for its output.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        port: int,
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        folder = BUILT / "logs"
        folder.mkdir(parents=True, exist_ok=True)
        self.port = port
        self.log = folder / f"{name}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})},
                cwd=cwd,
                text=True,
            )
        self._name = name

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Send SIGTERM, and SIGKILL when that does not help."""
        self.process.terminate()
        try:
            self.process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def wait_http(self, path: str, statuses: Sequence[int] = (200,)) -> float:
        """Wait until it answers one of ``statuses``; return the seconds.

        Raises:
            BenchmarkError: it ended, or did not in a minute.
        """
        begun = time.perf_counter()
        while not _answers(self.port, path, statuses):
            self._still(begun)
            time.sleep(0.01)
        return time.perf_counter() - begun

    def wait_port(self) -> None:
        """Wait until it takes connections.

        Raises:
            BenchmarkError: it ended, or did not in a minute.
        """
        begun = time.perf_counter()
        while not _listens(self.port):
            self._still(begun)
            time.sleep(0.01)

    def wait_said(self, text: str) -> None:
        """Wait until its output contains a text.

        Raises:
            BenchmarkError: it ended, or did not in a minute.
        """
        begun = time.perf_counter()
        while text not in self.log.read_text(errors="replace"):
            self._still(begun)
            time.sleep(0.01)

    def _still(self, begun: float) -> None:
        if self.process.poll() is not None or time.perf_counter() - begun > _START_S:
            tail = self.log.read_text(errors="replace")[-2000:]
            raise BenchmarkError(f"{self._name} did not start:\n{tail}")

    def pids(self) -> list[int]:
        """Its own process id and those of its descendants."""
        found = [self.process.pid]
        for pid in found:
            for task in Path(f"/proc/{pid}/task").glob("*/children"):
                found += [int(child) for child in task.read_text().split()]
        return found

    def cpu_s(self) -> float:
        """CPU seconds, user and system, of it and its descendants so far."""
        return sum(self.cpu_s_of(pid) for pid in self.pids())

    def cpu_s_of(self, pid: int) -> float:
        """CPU seconds, user and system, of one of its processes so far, by the scheduler's clock: nanoseconds count."""
        return time.clock_gettime(~pid << 3 | _SCHEDULER)  # as clock_getcpuclockid(3) makes it

    def resident_bytes(self) -> int:
        """Resident memory of it and its descendants."""
        return self._memory("status", "VmRSS")

    def most_resident_bytes(self) -> int:
        """The most resident memory that each of them has had so far, together."""
        return self._memory("status", "VmHWM")

    def private_bytes(self) -> int:
        """Resident memory of it and its descendants that no file backs: what they allocated, and nothing shared."""
        return self._memory("smaps_rollup", "Anonymous")

    def resident_of(self, pid: int) -> int:
        """Resident memory of one of its processes."""
        return _memory_of(pid, "status", "VmRSS")

    def most_resident_of(self, pid: int) -> int:
        """The most resident memory that one of its processes has had since ``forget_most``."""
        return _memory_of(pid, "status", "VmHWM")

    def forget_most(self) -> None:
        """Count the most resident memory from now on."""
        for pid in self.pids():
            Path(f"/proc/{pid}/clear_refs").write_text("5")

    def _memory(self, file: str, field: str) -> int:
        return sum(_memory_of(pid, file, field) for pid in self.pids())


def _memory_of(pid: int, file: str, field: str) -> int:
    lines = Path(f"/proc/{pid}/{file}").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _answers(port: int, path: str, statuses: Sequence[int]) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status in statuses
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


class Paced(Child):
    """A synthetic server whose pace is set through its standard input."""

    def pace(self, delay_us: int) -> None:
        """Send a token of each request every ``delay_us`` from now on; 0 for full speed."""
        self._say(str(delay_us))

    def _say(self, line: str) -> None:
        stdin = self.process.stdin
        if stdin is None:
            raise BenchmarkError("it has no standard input")
        stdin.write(f"{line}\n")
        stdin.flush()
        time.sleep(0.05)  # for its other thread to read it


class SyntheticTriton(Paced):
    """The synthetic Triton; its text tokens are stamped with their time."""

    def __init__(self, repository: Path, beside: Sequence[SyntheticTriton] = ()) -> None:
        """Start it.

        Args:
            repository: the repository that it describes.
            beside: others, whose port it shares: the kernel gives each connection to one of them.

        Raises:
            BenchmarkError: it ended, or did not start in a minute.
        """
        port = beside[0].port if beside else free_port()
        super().__init__(
            f"synth{len(beside) or ''}", [BUILT / "synth", str(port), repository], port, env={"STAMP": "1"}
        )
        self.wait_said("synthetic Triton on")

    def answer(self, ids: Sequence[int] = ()) -> None:
        """Answer requests of the token dialect with these ids, repeated; without any, with the default ones."""
        self._say(" ".join(["ids", *map(str, ids)]))

    def end_streams(self) -> None:
        """End running streams with their next response."""
        self._say("end")
