"""The description of the machine and the versions of a measurement."""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path

from .processes import ROOT

_PACKAGES = ("grpcio", "uvicorn", "uvloop", "starlette", "fastapi", "tritonclient", "sse-starlette", "tokenizers")


def describe(command: str) -> dict[str, str]:
    """Machine, versions, date and command of a measurement that is made now."""
    versions = [f"{name} {importlib.metadata.version(name)}" for name in _PACKAGES]
    return {
        "machine": f"{len(os.sched_getaffinity(0))} x {_processor()}, {_memory_gib()} GiB, {_system()}",
        "load": f"load average {os.getloadavg()[0]:.1f} at the start",
        "versions": ", ".join([f"CPython {platform.python_version()}", *versions]),
        "date": dt.datetime.now(dt.timezone.utc).date().isoformat(),
        "revision": _revision(),
        "command": command,
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _memory_gib() -> int:
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)


def _system() -> str:
    release = platform.freedesktop_os_release()
    return f"{release.get('PRETTY_NAME', platform.system())}, Linux {platform.release().partition('-')[0]}"


def _revision() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout.strip() or "unknown"
