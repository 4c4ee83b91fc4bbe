"""Reads processes from /proc: the server among the ranks of mpirun, and the stubs of a server."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_PROCESSES: Final = Path("/proc")
_STUB: Final = "triton_python_b"  # triton_python_backend_stub, as the kernel cuts it
_DEAD_AFTER_S: Final = 1.0  # a stub whose model is unloaded is a zombie for a moment too


def descendants(pid: int) -> Iterator[int]:
    """Yield the processes that a process and its children started."""
    with contextlib.suppress(OSError):  # it has ended meanwhile
        for task in (_PROCESSES / str(pid) / "task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                yield child
                yield from descendants(child)


def arguments(pid: int) -> list[str]:
    """The words of a process's command line; empty where it has ended."""
    with contextlib.suppress(OSError):
        return (_PROCESSES / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")
    return []


def is_zombie_stub(pid: int) -> bool:
    """Tell whether a process is a dead stub of Triton's Python backend that was not waited for."""
    with contextlib.suppress(OSError):
        name, _, rest = (_PROCESSES / str(pid) / "stat").read_text(errors="replace").rpartition(")")
        return name.endswith(f"({_STUB}") and rest.split()[0] == "Z"
    return False


class StubWatch:
    """Watches the stubs of a server, because Triton reports a model as ready after its stub died."""

    def __init__(self) -> None:
        self._models: dict[int, str] = {}
        self._dead_since: dict[int, float] = {}

    def dead_model(self, pid: int) -> str | None:
        """Look for dead stubs below a process.

        Returns:
            The model of a stub that has been dead for a second; None where all live.
        """
        for stub in descendants(pid):
            words = arguments(stub)
            if len(words) > 1 and words[1].endswith("/model.py"):
                self._models[stub] = Path(words[1]).parents[1].name
            elif is_zombie_stub(stub):
                since = self._dead_since.setdefault(stub, time.monotonic())
                if time.monotonic() - since >= _DEAD_AFTER_S:
                    return self._models.get(stub, "unknown")
        return None
