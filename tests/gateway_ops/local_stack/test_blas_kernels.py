"""NumPy's OpenBLAS computes with AVX-512 where the CPU has it, and as it likes elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gateway_ops.local_stack.triton_installation import openblas_kernels, stub_environment

_NAME = """\
import ctypes
import numpy
path = next(line.split()[-1] for line in open("/proc/self/maps") if "openblas" in line)
name = getattr(ctypes.CDLL(path), "openblas_get_corename64_")
name.restype = ctypes.c_char_p
print(name().decode())
"""


def _kernels(env: dict[str, str]) -> str:
    done = subprocess.run([sys.executable, "-c", _NAME], env=env, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_numpy_takes_the_kernels_that_the_environment_of_stubs_names() -> None:
    plain = {name: value for name, value in os.environ.items() if name != "OPENBLAS_CORETYPE"}
    named = openblas_kernels(Path("/proc/cpuinfo").read_text())
    assert _kernels(stub_environment(plain)) == named.get("OPENBLAS_CORETYPE", _kernels(plain))


def test_what_the_user_names_stands() -> None:
    assert stub_environment({**os.environ, "OPENBLAS_CORETYPE": "Haswell"})["OPENBLAS_CORETYPE"] == "Haswell"


@pytest.mark.parametrize(
    ("flags", "kernels"),
    [
        ("fpu sse4_2 avx2 avx512f avx512dq avx512cd avx512bw avx512vl", {"OPENBLAS_CORETYPE": "SkylakeX"}),
        ("fpu sse4_2 avx2 avx512f", {}),
        ("fpu sse4_2 avx2", {}),
    ],
)
def test_a_cpu_without_all_that_the_kernels_use_is_left_alone(flags: str, kernels: dict[str, str]) -> None:
    assert openblas_kernels(f"processor\t: 0\nflags\t\t: {flags}\nbogomips\t: 1\n") == kernels
    assert openblas_kernels("Features\t: fp asimd\n") == {}
