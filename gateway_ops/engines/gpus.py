"""GPUs with memory and compute capability, by name or of this machine."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass

MIB = 2**20


@dataclass(frozen=True, slots=True)
class Gpu:
    """A kind of GPU.

    Attributes:
        name: as ``nvidia-smi`` writes it.
        memory_bytes: all of its memory.
        capability: CUDA's compute capability, such as ``9.0``; empty for an unknown one.
    """

    name: str
    memory_bytes: int
    capability: str = ""


def _gpu(name: str, memory_mib: int, capability: str) -> Gpu:
    return Gpu(name, memory_mib * MIB, capability)


KNOWN: dict[str, Gpu] = {
    "t4": _gpu("Tesla T4", 15360, "7.5"),
    "a10": _gpu("NVIDIA A10", 23028, "8.6"),
    "a10g": _gpu("NVIDIA A10G", 23028, "8.6"),
    "a30": _gpu("NVIDIA A30", 24576, "8.0"),
    "a40": _gpu("NVIDIA A40", 46068, "8.6"),
    "a100-40": _gpu("NVIDIA A100-SXM4-40GB", 40960, "8.0"),
    "a100-80": _gpu("NVIDIA A100-SXM4-80GB", 81920, "8.0"),
    "l4": _gpu("NVIDIA L4", 23034, "8.9"),
    "l40s": _gpu("NVIDIA L40S", 46068, "8.9"),
    "rtx4090": _gpu("NVIDIA GeForce RTX 4090", 24564, "8.9"),
    "h100": _gpu("NVIDIA H100 80GB HBM3", 81559, "9.0"),
    "h200": _gpu("NVIDIA H200", 143771, "9.0"),
    "b200": _gpu("NVIDIA B200", 183359, "10.0"),
}
"""By a short name: what ``nvidia-smi`` reports (``memory.total``, with error correction where it is on by default).

Sources: NVIDIA's data sheets for the size, its page of CUDA GPUs for the capability, public ``nvidia-smi`` logs for the
exact number. That of the H100 was read from one.
"""

_QUERY = ("--query-gpu=name,memory.total,compute_cap", "--format=csv,noheader,nounits")
_PATIENCE_S = 30


def this_machine() -> tuple[Gpu, ...]:
    """The GPUs that ``nvidia-smi`` finds on this machine, in its order; none without it."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return ()
    try:
        asked = subprocess.run(  # noqa: S603 - the program that the operator's PATH names
            [program, *_QUERY], capture_output=True, text=True, timeout=_PATIENCE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()
    found = []
    for line in asked.stdout.splitlines() if asked.returncode == 0 else ():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) == 3 and fields[1].isdigit():
            found.append(_gpu(fields[0], int(fields[1]), fields[2]))
    return tuple(found)
