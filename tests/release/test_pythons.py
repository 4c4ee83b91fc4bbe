"""The interpreters and machines that the gateway promises: tried where they are here, else by the wheels there are."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gateway_ops.local_stack.cache import cache_dir
from tests.release.conftest import ROOT, Archives

MINORS = range(10, 15)
ENDS = (MINORS[0], 13, MINORS[-1])  # where what is new or gone shows; the release workflow has all
MACHINES = ("x86_64", "aarch64")


def interpreter(minor: int) -> str | None:
    """An interpreter of this version, on the path or among pyenv's."""
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [shutil.which(f"python3.{minor}"), *sorted(versions.glob(f"3.{minor}.*/bin/python"))]
    for found in candidates:
        # A shim of pyenv's is there for versions that it does not run.
        if found and subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode == 0:
            return str(found)
    return None


@pytest.mark.long
@pytest.mark.parametrize("minor", ENDS)
def test_the_wheel_serves_under_each_interpreter_that_is_here(minor: int, archives: Archives) -> None:
    python = interpreter(minor)
    if python is None:
        pytest.skip(f"there is no Python 3.{minor} here; the release workflow has one")
    environment = cache_dir() / "pythons" / f"3.{minor}"
    environment.parent.mkdir(parents=True, exist_ok=True)
    command = [python, str(ROOT / "tests/release/smoke.py"), str(environment), "--gateway", str(archives.wheel)]
    environ = {key: value for key, value in os.environ.items() if not key.startswith("GATEWAY_")}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"on Python 3.{minor}." in done.stdout
    assert "one answer streamed" in done.stdout


@pytest.mark.long
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("minor", [MINORS[0], MINORS[-1]])
def test_there_are_wheels_of_all_requirements(minor: int, machine: str) -> None:
    """Nobody needs a compiler: the images for arm64, and a Python that is not here, are installed from wheels."""
    command = [
        str(Path(sys.executable).with_name("uv")), "pip", "compile", "--quiet", "--no-deps", "--only-binary", ":all:",
        "--python-version", f"3.{minor}", "--python-platform", f"{machine}-manylinux_2_28", "--no-annotate",
        "--no-header", str(ROOT / "requirements" / "state.txt"),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(done.stdout.splitlines()) > 50


def test_the_promise_is_the_same_everywhere() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    workflow = (ROOT / ".github/workflows/release.yml").read_text()
    for minor in MINORS:
        assert f'"Programming Language :: Python :: 3.{minor}"' in project
        assert f'"3.{minor}"' in workflow
    assert f'"Programming Language :: Python :: 3.{MINORS.stop}"' not in project
