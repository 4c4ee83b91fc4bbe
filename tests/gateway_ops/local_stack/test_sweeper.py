"""Nothing of a dead server stays, and nothing of a living one goes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gateway_ops.local_stack import sweeper
from gateway_ops.local_stack.sweeper import SHARED_MEMORY, new_server_name, sweep_stale


@pytest.fixture
def region() -> Iterator[Callable[[str], Path]]:
    """Makes regions of shared memory for the server with a name."""
    made: list[Path] = []

    def make(name: str) -> Path:
        path = SHARED_MEMORY / f"{name}_region"
        path.write_bytes(b"x")
        made.append(path)
        return path

    yield make
    for path in made:
        path.unlink(missing_ok=True)


def member(name: str) -> subprocess.Popen[bytes]:
    """A process of the server with this name, as its command line has it."""
    process = subprocess.Popen([sys.executable, "-c", "import time; print(flush=True); time.sleep(60)", f"--id={name}"],
                               stdout=subprocess.PIPE)  # fmt: skip
    assert process.stdout is not None
    with process.stdout as out:
        out.readline()
    return process


def test_stale_regions_are_those_without_a_process(region: Callable[[str], Path]) -> None:
    dead, living = region(new_server_name()), new_server_name()
    elsewhere = region(f"gateway-1-{os.urandom(6).hex()}")  # of another namespace of process ids
    kept = region(living)
    with member(living) as server:
        sweep_stale()
        assert not dead.exists()
        assert kept.exists()
        assert elsewhere.exists()
        server.kill()


def test_a_server_that_starts_meanwhile_keeps_its_regions(
    region: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh: list[Path] = []
    commands = sweeper._commands

    def meanwhile() -> Iterator[tuple[int, str]]:
        yield from commands()
        fresh.append(region(new_server_name()))

    monkeypatch.setattr(sweeper, "_commands", meanwhile)
    sweep_stale()
    assert fresh[0].exists()


@pytest.mark.parametrize("runs", [True, False])
def test_empty_folders_of_environments_go_with_the_last_server(
    runs: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes, environments = tmp_path / "proc", tmp_path / "tmp"
    (processes / "7").mkdir(parents=True)
    (processes / "7" / "cmdline").write_bytes(b"tritonserver\0--id=x" if runs else b"python\0")
    (environments / "python_env_abcdef").mkdir(parents=True)
    (environments / "python_env_filled" / "0").mkdir(parents=True)
    monkeypatch.setattr(sweeper, "_PROCESSES", processes)
    monkeypatch.setattr(sweeper, "_ENVIRONMENTS", environments)
    sweep_stale()
    left = {folder.name for folder in environments.iterdir()}
    assert left == {"python_env_filled"} | ({"python_env_abcdef"} if runs else set())
