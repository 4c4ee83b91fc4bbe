"""The check whether this machine can run the embedded tritonserver: a sentence and the fix for each lack.

It runs before anything is installed, as ``python3 gateway_ops/local_stack/platform_check.py``, and on Pythons that
are too old: so it imports the standard library alone and keeps to the syntax of Python 3.6.
"""

import ctypes
import importlib.util
import platform
import sys
import sysconfig
from pathlib import Path
from typing import NamedTuple

SUPPORTED = ((3, 10), (3, 11), (3, 12))
OLDEST_GLIBC = (2, 35)


class MachineFacts(NamedTuple):
    """Facts about a machine and an interpreter; ``gather`` collects them, ``problems`` judges them.

    Attributes:
        system: as ``platform.system()`` has it, such as Linux.
        machine: as ``platform.machine()`` has it, such as x86_64.
        implementation: as ``platform.python_implementation()`` has it, such as CPython.
        python: major and minor version.
        libc: name and version of the C library, such as "glibc 2.36"; only the name where the version is unknown.
        venv: whether environments can be made (module venv with ensurepip).
        libpython: folder of the shared libpython, "system" when the loader finds it, "" without one.
        executable: path of the interpreter.
    """

    system: str
    machine: str
    implementation: str
    python: "tuple[int, ...]"
    libc: str
    venv: bool
    libpython: str
    executable: str


def gather() -> MachineFacts:
    """Look at this machine and the running interpreter."""
    return MachineFacts(
        system=platform.system(),
        machine=platform.machine(),
        implementation=platform.python_implementation(),
        python=tuple(sys.version_info[:2]),
        libc=" ".join(platform.libc_ver()).strip(),
        venv=importlib.util.find_spec("venv") is not None and importlib.util.find_spec("ensurepip") is not None,
        libpython=find_libpython(),
        executable=sys.executable,
    )


def find_libpython() -> str:
    """Find the shared library of the running interpreter, which Triton's Python backend is linked to.

    Returns:
        Its folder, "system" when the loader finds it by name, "" without one.
    """
    name = f"libpython{sys.version_info[0]}.{sys.version_info[1]}.so.1.0"
    libdir = Path(sysconfig.get_config_var("LIBDIR") or sys.base_prefix)
    multiarch = sysconfig.get_config_var("MULTIARCH") or ""
    for folder in (Path(sys.base_prefix) / "lib", libdir, libdir / multiarch):
        if (folder / name).is_file():
            return str(folder)
    try:
        ctypes.CDLL(name)
    except OSError:
        return ""
    return "system"


def problems(facts: MachineFacts, need_venv: bool = True) -> "list[str]":
    """Judge the facts.

    Returns:
        One text for each thing missing: what, and the fix. Empty when all is well.
    """
    if facts.system != "Linux" or facts.machine not in ("x86_64", "AMD64"):
        return [
            f"This is {facts.system} on {facts.machine}, but the embedded Triton Inference Server exists only for "
            "Linux on x86-64: use such a machine, or run the gateway alone (gateway serve) in front of a remote Triton."
        ]
    found = []
    version = ".".join(str(part) for part in facts.python)
    if facts.implementation != "CPython" or facts.python not in SUPPORTED:
        found.append(
            f"{facts.executable} is {facts.implementation} {version}, but the embedded tritonserver "
            "needs CPython 3.10, 3.11 or 3.12 (later ones need NumPy 2, with which its stub misreads tensors): "
            "install one of these and name it, for example: make up PYTHON=/usr/bin/python3.12. Where the distribution "
            "has none, as Debian 13: uv python install 3.12 and make up PYTHON=$(uv python find 3.12), or pyenv; "
            "or containers: docker compose --profile cpu up"
        )
        return found  # the checks below would judge the wrong interpreter
    if not _libc_is_fit(facts.libc):
        found.append(
            f"The C library is {facts.libc or 'not glibc'}, but tritonserver needs glibc 2.35 or newer: use Debian 12, "
            "Ubuntu 22.04 or a later distribution."
        )
    if need_venv and not facts.venv:
        found.append(
            f"Python {version} cannot make virtual environments: install its venv module, "
            f"on Debian and Ubuntu: apt-get install python{version}-venv"
        )
    if not facts.libpython:
        found.append(
            f"The shared library libpython{version}.so.1.0 is missing, which Triton's Python backend needs: install "
            f"it, on Debian and Ubuntu: apt-get install libpython{version}; "
            "with pyenv build Python with PYTHON_CONFIGURE_OPTS=--enable-shared"
        )
    return found


def _libc_is_fit(libc: str) -> bool:
    name, _, version = libc.partition(" ")
    if name != "glibc":
        return False
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    return not numbers or numbers >= OLDEST_GLIBC


def main(arguments: "list[str]") -> int:
    """Print what is missing to standard error (nothing with ``--quiet``); 0 when all is well, else 1."""
    found = problems(gather())
    if "--quiet" not in arguments:
        for text in found:
            sys.stderr.write(text + "\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
