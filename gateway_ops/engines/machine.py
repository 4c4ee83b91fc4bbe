"""The facts of a machine that a build depends on: TensorRT-LLM's version and the GPUs."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass

from gateway_ops.engines.gpus import Gpu, this_machine

_ASK = "import importlib.metadata as m; print(m.version('tensorrt_llm'))"
_PATIENCE_S = 60


@dataclass(frozen=True, slots=True)
class Machine:
    """The facts of a machine that engines depend on.

    Attributes:
        trtllm: the installed version of TensorRT-LLM; empty without one.
        gpus: in nvidia-smi's order.
    """

    trtllm: str
    gpus: tuple[Gpu, ...]


def look_around() -> Machine:
    """Read the facts of this machine from ``python3`` and ``nvidia-smi`` of the PATH."""
    return Machine(_installed_version(), this_machine())


def _installed_version() -> str:
    program = shutil.which("python3")
    if program is None:
        return ""
    try:
        asked = subprocess.run(  # noqa: S603 - the interpreter that the operator's PATH names
            [program, "-c", _ASK], capture_output=True, text=True, timeout=_PATIENCE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return asked.stdout.strip() if asked.returncode == 0 else ""


def same_version(required: str, actual: str) -> bool:
    """Tell whether a version is the requested one, as far as that is given: 1.2 is any 1.2.x."""
    numbers = re.match(r"\d+(\.\d+)*", actual)
    parts = numbers[0].split(".") if numbers else []
    return parts[: len(required.split("."))] == required.split(".")
