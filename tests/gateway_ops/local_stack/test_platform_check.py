"""What a machine must have, which kernels it computes with, and the paths and modules that Triton starts from."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from gateway_ops.local_stack import platform_check
from gateway_ops.local_stack.platform_check import MachineFacts, problems
from gateway_ops.local_stack.triton_installation import (
    TritonStartError,
    find_tritonserver,
    openblas_kernels,
    prepare_backend_directory,
    stub_environment,
)
from gateway_ops.local_stack.tritonserver import TritonServer

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


_NAME = """\
import ctypes
import numpy
path = next(line.split()[-1] for line in open("/proc/self/maps") if "openblas" in line)
name = getattr(ctypes.CDLL(path), "openblas_get_corename64_")
name.restype = ctypes.c_char_p
print(name().decode())
"""


def test_numpy_takes_the_kernels_that_the_environment_of_stubs_names() -> None:
    def kernels(env: dict[str, str]) -> str:
        done = subprocess.run([sys.executable, "-c", _NAME], env=env, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    plain = {name: value for name, value in os.environ.items() if name != "OPENBLAS_CORETYPE"}
    named = openblas_kernels(Path("/proc/cpuinfo").read_text())
    assert kernels(stub_environment(plain)) == named.get("OPENBLAS_CORETYPE", kernels(plain))
    assert stub_environment({**plain, "OPENBLAS_CORETYPE": "Haswell"})["OPENBLAS_CORETYPE"] == "Haswell"


def test_a_cpu_without_all_that_the_kernels_use_is_left_alone() -> None:
    whole = "flags\t\t: fpu sse4_2 avx2 avx512f avx512dq avx512cd avx512bw avx512vl\n"
    assert openblas_kernels(f"processor\t: 0\n{whole}bogomips\t: 1\n") == {"OPENBLAS_CORETYPE": "SkylakeX"}
    assert openblas_kernels("flags\t\t: fpu sse4_2 avx2 avx512f\n") == openblas_kernels("Features\t: asimd\n") == {}


def test_a_repository_with_a_space_in_its_path(tmp_path: Path) -> None:
    server = TritonServer(tmp_path / "my models", model_dir=None, log_path=tmp_path / "log")
    with pytest.raises(TritonStartError, match=r"my models contains ' '\. Move it into a folder without it."):
        server.start()
    assert not server.running


def test_a_cache_with_a_quote_in_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEWAY_CACHE_DIR", str(tmp_path / "o'clock"))
    with pytest.raises(TritonStartError, match="Set GATEWAY_CACHE_DIR to a folder without it"):
        prepare_backend_directory(find_tritonserver())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["plain", "r\u00e4der-1.2_x,y=z+@%:", "\u6a21\u578b"])
def test_other_names_are_taken(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEWAY_CACHE_DIR", str(tmp_path / name))
    assert (prepare_backend_directory(find_tritonserver()) / "python" / "libtriton_python.so").exists()


ROOT = Path(__file__).parents[3]
RUN = (
    "import gateway_ops.local_stack.fill_folder, gateway_ops.local_stack.tritonserver, gateway; print(gateway.__file__)"
)


def test_the_modules_that_are_copied_suffice(tmp_path: Path) -> None:
    dockerfile = (ROOT / "docker" / "Dockerfile.triton-cpu").read_text(encoding="utf-8")
    for sources, target in re.findall(r"(?m)^COPY (gateway\S*/.*) (\S+)$", dockerfile):
        for source in map(ROOT.joinpath, sources.split()):
            place = tmp_path / target
            if source.is_dir():
                shutil.copytree(source, place)
                continue
            place = place / source.name if target.endswith("/") else place
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, place)
    # Without the .pth files of site-packages, by which an editable installation would be found.
    path = f"{tmp_path}:{sysconfig.get_path('purelib')}"
    found = subprocess.run(
        [sys.executable, "-S", "-c", RUN],
        cwd=tmp_path,
        env={"PYTHONPATH": path},
        text=True,
        capture_output=True,
        check=False,
    )
    assert found.stdout.strip() == str(tmp_path / "gateway" / "__init__.py"), found.stderr
