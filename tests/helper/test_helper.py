"""A process for one kind of work: warm, bounded, without anything of its parent's, and gone with it."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.text.untrusted_work import Helper, HelperFailedError
from tests.bound_process import BoundProcess

MODULE = "tests.helper.echo"


@pytest.fixture
def helper() -> Iterator[Helper]:
    made = Helper(MODULE, memory_bytes=2**30, seconds=1.0, largest=2**16)
    yield made
    made.close()


def test_it_answers_and_stays(helper: Helper) -> None:
    assert helper.pid is None  # nothing runs before it is needed
    assert helper.ask(b"one") == b"one"
    first = helper.pid
    assert helper.ask(b"x" * 2**16) == b"x" * 2**16
    assert helper.ask(b"") == b""
    assert helper.pid == first


@pytest.mark.parametrize(
    ("question", "reason"), [(b"burn", "time"), (b"take", "ended"), (b"talk", "size"), (b"end", "ended")]
)
def test_one_that_passes_a_bound_is_ended_and_the_next_question_is_answered(
    helper: Helper, question: bytes, reason: str
) -> None:
    helper.ask(b"warm")
    pid = helper.pid
    with pytest.raises(HelperFailedError) as caught:
        helper.ask(question)
    assert caught.value.reason == reason
    assert not Path(f"/proc/{pid}").exists()
    assert helper.ask(b"again") == b"again"


def test_it_has_nothing_of_its_parents(helper: Helper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEWAY_API_KEYS", "secret")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.set_inheritable(True)
        helper.ask(b"warm")
        pid = helper.pid
        assert b"secret" not in Path(f"/proc/{pid}/environ").read_bytes()
        held = [str(link.readlink()).partition(":")[0] for link in Path(f"/proc/{pid}/fd").iterdir()]
        assert sorted(held) == ["/dev/null", "pipe", "pipe"]


@pytest.mark.parametrize("busy", [False, True])
def test_it_ends_with_its_parent(busy: bool) -> None:
    """Long before the seconds that it has for an answer."""
    program = (
        "import os, signal, threading; from gateway.text.untrusted_work import Helper;"
        f"helper = Helper({MODULE!r}, memory_bytes=2**30, seconds=30.0, largest=2**16);"
        "helper.ask(b'warm'); print(helper.pid, flush=True);"
        f"threading.Thread(target=helper.ask, args=(b'burn',), daemon=True).start() if {busy} else None;"
        "input(); os.kill(os.getpid(), signal.SIGKILL)"
    )
    with BoundProcess([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        stat = Path(f"/proc/{int(parent.stdout.readline())}/stat")
        used = _ticks(stat)
        while busy and _ticks(stat) < used + 10:  # in the middle of the answer
            time.sleep(0.01)
        parent.communicate(b"\n")
    for _ in range(1000):
        if not stat.exists() or ") Z " in stat.read_text():
            return
        time.sleep(0.01)
    pytest.fail("it runs on without a parent")


def _ticks(stat: Path) -> int:
    """CPU time that a process has used."""
    return int(stat.read_text().rpartition(")")[2].split()[11])


def test_it_outlives_the_thread_whose_question_started_it(helper: Helper) -> None:
    asking = threading.Thread(target=helper.ask, args=(b"one",))
    asking.start()
    task = Path(f"/proc/self/task/{asking.native_id}")
    asking.join()
    while task.exists():  # to the kernel it ends a little later
        time.sleep(0.001)
    pid = helper.pid
    assert helper.ask(b"two") == b"two"
    assert helper.pid == pid
