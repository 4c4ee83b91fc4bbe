"""NumPy's OpenBLAS computes with AVX-512 where the CPU has it, and as it likes elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from gateway_ops.local_stack.triton_installation import openblas_kernels, stub_environment

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
