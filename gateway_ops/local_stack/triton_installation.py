"""Finds the parts of the package nvidia-pytriton: binary, Python backend and stub.

Nothing is installed system-wide: the binary, its Python backend and one stub per Python version lie in the wheel.
Triton wants the stub beside ``libtriton_python.so``, so a folder of links is made once in the user's cache folder.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gateway.settings.extras import pip_install
from gateway_ops.local_stack import LocalStackError, platform_check
from gateway_ops.local_stack.cache import cache_dir, made_once

_DISTRIBUTION = "nvidia-pytriton"
_OF_A_SHELL = re.compile(r"[\s'\"`$&;|<>(){}\\]")
_CPU_INFO = Path("/proc/cpuinfo")
_AVX512 = {f"avx512{part}" for part in ("f", "cd", "bw", "dq", "vl")}


class TritonStartError(LocalStackError):
    """The server cannot be started or did not become ready.

    Attributes:
        log_lines: the lines of its log with the reason, empty when it never ran.
    """

    def __init__(self, message: str, log_lines: Sequence[str] = ()) -> None:
        super().__init__("\n".join([message, *log_lines]))
        self.log_lines = tuple(log_lines)


@dataclass(frozen=True, slots=True)
class TritonInstallation:
    """The paths of the parts of nvidia-pytriton.

    Attributes:
        binary: the ``tritonserver`` executable.
        backend: the folder of the Python backend's library and ``triton_python_backend_utils.py``.
        stub: the stub for the running Python version.
        version: version of the package.
    """

    binary: Path
    backend: Path
    stub: Path
    version: str


def find_tritonserver() -> TritonInstallation:
    """Find the tritonserver that the extra ``embedded`` installs.

    Raises:
        TritonStartError: the extra is not installed, or it has no stub for the running Python version.
    """
    try:
        distribution = importlib.metadata.distribution(_DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        raise TritonStartError(
            f"no tritonserver here: nvidia-pytriton is not installed; install it by {pip_install('embedded')}"
        ) from None
    root = Path(str(distribution.locate_file("pytriton/tritonserver")))
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    found = TritonInstallation(
        binary=root / "bin" / "tritonserver",
        backend=root / "backends" / "python",
        stub=root / "python_backend_stubs" / python / "triton_python_backend_stub",
        version=distribution.version,
    )
    for path in (found.binary, found.backend / "libtriton_python.so", found.stub):
        if not path.exists():
            raise TritonStartError(
                f"nvidia-pytriton {found.version} has no {path.relative_to(root)}; "
                "the embedded tritonserver needs Linux x86-64 and Python 3.10 to 3.12"
            )
    return found


def not_for_stubs(path: Path) -> str | None:
    """Say why the Python backend cannot use a path; None where it can.

    The backend starts its stubs by ``bash -c`` with unquoted paths (stub_launcher.cc): a stub whose path has a space or
    a quote never starts, and Triton waits for it for ever.
    """
    odd = _OF_A_SHELL.search(str(path))
    if odd is None:
        return None
    return f"Triton's Python backend passes paths to a shell unquoted, and {path} contains {odd[0]!r}."


def find_libpython() -> Path | None:
    """Find the folder of the shared libpython that Triton's Python stub is linked against.

    Returns:
        The folder to add to the library path, or None when the system's loader finds the library by itself.

    Raises:
        TritonStartError: the running interpreter has no shared libpython.
    """
    found = platform_check.find_libpython()
    if not found:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        raise TritonStartError(
            f"libpython{version}.so.1.0 not found: Triton's Python backend needs the shared libpython; "
            f"on Debian or Ubuntu: apt-get install libpython{version}"
        )
    return None if found == "system" else Path(found)


def openblas_kernels(cpu_info: str) -> dict[str, str]:
    """The variable that selects OpenBLAS's kernels for AVX-512, as NumPy's OpenBLAS does not know newer CPUs."""
    flags = next((line.split() for line in cpu_info.splitlines() if line.startswith("flags")), [])
    return {"OPENBLAS_CORETYPE": "SkylakeX"} if _AVX512.issubset(flags) else {}


def stub_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Make the environment in which a Triton stub finds this Python, its packages, library and BLAS kernels.

    Raises:
        TritonStartError: the running interpreter has no shared libpython.
    """
    # The stub embeds the first python3 on PATH, and so this environment's packages.
    found = {**env, "PATH": os.pathsep.join([str(Path(sys.executable).parent), env.get("PATH", os.defpath)])}
    libpython = find_libpython()
    if libpython is not None:
        found["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, [str(libpython), env.get("LD_LIBRARY_PATH")]))
    found.pop("PYTHONHOME", None)
    kernels = openblas_kernels(_CPU_INFO.read_text(encoding="utf-8") if _CPU_INFO.exists() else "")
    return {**kernels, **found}


def prepare_backend_directory(installation: TritonInstallation) -> Path:
    """Make the folder for ``--backend-directory`` once: links to the Python backend and its stub.

    Raises:
        TritonStartError: the cache folder cannot be written, or stubs cannot be started from there.
    """
    files = [
        installation.backend / "libtriton_python.so",
        installation.backend / "triton_python_backend_utils.py",
        installation.stub,
    ]
    recipe = "\n".join([installation.version, *map(str, files)])
    folder = cache_dir() / "triton-backends" / hashlib.sha256(recipe.encode()).hexdigest()[:16]
    reason = not_for_stubs(folder)
    if reason is not None:
        raise TritonStartError(f"{reason} Set GATEWAY_CACHE_DIR to a folder without it.")

    def make(target: Path) -> None:
        (target / "python").mkdir()
        for file in files:
            (target / "python" / file.name).symlink_to(file)

    try:
        return made_once(folder, recipe, make)
    except OSError as error:
        raise TritonStartError(f"cannot prepare the backend folder {folder}: {error}") from error
