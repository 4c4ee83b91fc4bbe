"""The installation of ``make up``: on a terminal it says how far it is, elsewhere nothing but faults."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from gateway_ops.local_stack import pip_progress
from tests.terminal import Terminal


@pytest.fixture
def command(tmp_path: Path) -> list[str | Path]:
    """Installs one package from a folder into another."""
    with zipfile.ZipFile(tmp_path / "onemodule-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("onemodule.py", "")
        wheel.writestr("onemodule-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: onemodule\nVersion: 1.0\n")
        wheel.writestr(
            "onemodule-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr("onemodule-1.0.dist-info/RECORD", "")
    (tmp_path / "requirements.txt").write_text("# one\nonemodule==1.0\n")
    where = ("--no-index", "--find-links", tmp_path, "--target", tmp_path / "installed")
    return [sys.executable, pip_progress.__file__, *where, "-r", tmp_path / "requirements.txt"]


def test_a_terminal_is_told_how_far_it_is(command: list[str | Path], tmp_path: Path) -> None:
    with Terminal(command, os.environ) as terminal:
        terminal.expect("fetching packages: 1 of at most 1")
        terminal.expect("installing them")
        assert terminal.end() == 0
    assert (tmp_path / "installed" / "onemodule.py").exists()


def test_what_cannot_be_installed_is_said(command: list[str | Path], tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("nothing-such==1.0\n")
    with Terminal(command, os.environ) as terminal:
        terminal.expect("No matching distribution found for nothing-such==1.0")
        assert terminal.end() == 1
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "No matching distribution found for nothing-such==1.0" in done.stderr


def test_elsewhere_success_is_silent(command: list[str | Path]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == ("", "")
