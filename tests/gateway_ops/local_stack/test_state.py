"""The state of a deployment: whose process it names, and how it is stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway_ops.local_stack import LocalStackError
from gateway_ops.local_stack.state import Process, RunFolder, RunState, stop_process
from tests.bound_process import BoundProcess

OBEDIENT = "import sys; print('up', flush=True); sys.stdin.read()"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + OBEDIENT
CLAIMANT = """
import sys
from gateway_ops.local_stack.state import RunFolder
with RunFolder(9000).claim():
    print("claimed", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEWAY_CACHE_DIR", str(tmp_path))


@pytest.fixture
def child(request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    """A process that runs a program which prints a line once it is up."""
    with BoundProcess(
        [sys.executable, "-c", getattr(request, "param", OBEDIENT)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        process.stdout.readline()
        yield process
        process.kill()


def state_of(pid: int) -> RunState:
    return RunState(Process.of(pid), True, "http://127.0.0.1:9000", "tiny", "127.0.0.1:1", "http://127.0.0.1:2")


def test_what_is_written_is_read_and_a_damaged_file_names_nothing() -> None:
    folder = RunFolder(9000)
    assert folder.read() is None
    folder.write(state_of(os.getpid()))
    assert folder.read() == state_of(os.getpid())
    for text in ("", "[]", '{"supervisor": 1}', '{"pid": 1}'):
        (folder.path / "state.json").write_text(text)
        assert folder.read() is None


def test_a_process_that_ended_is_not_alive(child: subprocess.Popen[str]) -> None:
    process = Process.of(child.pid)
    assert process.alive
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # ended, and not yet collected by its parent
    assert not process.alive
    with pytest.raises(ProcessLookupError):
        Process.of(child.pid)


def test_a_later_process_with_the_same_id_is_left_alone(child: subprocess.Popen[str]) -> None:
    folder = RunFolder(9000)
    folder.write(state_of(child.pid))
    path = folder.path / "state.json"
    fields = json.loads(path.read_text())
    fields["supervisor"]["started"] += "0"
    path.write_text(json.dumps(fields))
    assert folder.read() is None
    assert folder.stop(5) is False
    assert child.poll() is None


def test_stopping_waits_for_the_end(child: subprocess.Popen[str]) -> None:
    folder = RunFolder(9000)
    folder.write(state_of(child.pid))
    assert folder.stop(10) is True
    assert child.wait(0) == -signal.SIGTERM
    assert folder.stop(10) is False


@pytest.mark.parametrize("child", [STUBBORN], indirect=True)
def test_a_process_that_ignores_sigterm_is_killed(child: subprocess.Popen[str]) -> None:
    stop_process(Process.of(child.pid), 0.1)
    assert child.wait(5) == -signal.SIGKILL


def test_a_port_is_claimed_once_and_freed_by_a_crash() -> None:
    with BoundProcess(
        [sys.executable, "-c", CLAIMANT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "claimed\n"
        with pytest.raises(LocalStackError, match="already up on port 9000: stop it with: gateway down --port 9000"):
            RunFolder(9000).claim().__enter__()
        with RunFolder(9001).claim():
            pass
        other.kill()
    folder = RunFolder(9000)
    with folder.claim():
        folder.write(state_of(os.getpid()))
    assert folder.read() is None  # the state ends with the claim
