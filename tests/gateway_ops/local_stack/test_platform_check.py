"""What the platform check says, for machines that are not this one."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gateway_ops.local_stack import platform_check
from gateway_ops.local_stack.platform_check import MachineFacts, problems

GOOD = MachineFacts("Linux", "x86_64", "CPython", (3, 11), "glibc 2.36", True, "/usr/lib", "/usr/bin/python3")
SCRIPT = Path(platform_check.__file__)


@pytest.mark.parametrize(
    "changed",
    [{}, {"python": (3, 10)}, {"python": (3, 12)}, {"libc": "glibc"}],  # a version that is not told
)
def test_nothing_is_said_of_a_fit_machine(changed: dict[str, Any]) -> None:
    assert problems(GOOD._replace(**changed)) == []


@pytest.mark.parametrize(
    ("changed", "what", "fix"),
    [
        ({"system": "Darwin", "machine": "arm64"}, "Darwin on arm64", "remote Triton"),
        ({"machine": "aarch64"}, "Linux on aarch64", "x86-64"),
        ({"python": (3, 9)}, "CPython 3.9", "make up PYTHON="),
        ({"python": (3, 13)}, "CPython 3.13", "3.10, 3.11 or 3.12"),
        ({"implementation": "PyPy"}, "PyPy 3.11", "make up PYTHON="),
        ({"libc": ""}, "not glibc", "Debian 12"),
        ({"libc": "glibc 2.31"}, "glibc 2.31", "2.35 or newer"),
        ({"venv": False}, "virtual environments", "apt-get install python3.11-venv"),
        ({"libpython": ""}, "libpython3.11.so.1.0 is missing", "apt-get install libpython3.11"),
    ],
)
def test_each_lack_is_one_sentence_with_its_fix(changed: dict[str, Any], what: str, fix: str) -> None:
    (said,) = problems(GOOD._replace(**changed))
    assert what in said
    assert fix in said
    assert "\n" not in said


def test_every_lack_is_said_at_once() -> None:
    assert len(problems(GOOD._replace(venv=False, libpython="", libc="glibc 2.31"))) == 3
    assert problems(GOOD._replace(venv=False), need_venv=False) == []  # where the environment exists


def test_it_runs_alone_before_anything_is_installed() -> None:
    done = subprocess.run([sys.executable, "-I", "-S", SCRIPT], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_old_pythons_can_read_it() -> None:
    ast.parse(SCRIPT.read_text(), feature_version=(3, 6))
    imported = re.findall(r"(?m)^(?:import|from) (\w+)", SCRIPT.read_text())
    assert "sys" in imported
    assert {*imported} <= sys.stdlib_module_names
    assert "__future__" not in imported  # its annotations would be a syntax error for Python 3.6
