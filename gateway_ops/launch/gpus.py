"""The GPUs that a process started here would see."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_TIMEOUT_S: Final = 20
_NODES: Final = Path("/dev")


def visible_gpus(environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """List the visible GPUs, or their slices, as CUDA_VISIBLE_DEVICES names them.

    Args:
        environ: the environment of the process; by default this process's.
    """
    env = os.environ if environ is None else environ
    chosen = env.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return tuple(map(str, range(_count())))
    return tuple(part.strip() for part in chosen.split(",") if part.strip() not in ("", "-1"))


def _count() -> int:
    """GPUs of this machine by ``nvidia-smi``, a slice being one; without it, by their device files."""
    program = shutil.which("nvidia-smi")
    if program is not None:
        try:
            done = subprocess.run(  # noqa: S603 - the driver's own tool
                [program, "--list-gpus"], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return 0
        slices = len(re.findall(r"^\s+MIG ", done.stdout, re.MULTILINE))
        return slices or len(re.findall(r"^GPU \d+:", done.stdout, re.MULTILINE))
    return len([node for node in _NODES.glob("nvidia*") if re.fullmatch(r"nvidia\d+", node.name)])
