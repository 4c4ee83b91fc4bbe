"""The memory of this process and its limit: that of its cgroups, else that of the machine."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
MemoryState = Literal["normal", "soft", "hard"]
"""States: below the limits, beyond the soft one, beyond the hard one."""
_UNLIMITED: Final = 2**60  # version 1 writes a number near 2**63 for a missing limit


@dataclass(frozen=True, slots=True)
class CgroupFiles:
    """The names of a cgroup version's files.

    Attributes:
        limits: files of limits in bytes, of which the smallest counts.
        used: file of used bytes, with cached files among them.
        cached: the field of ``memory.stat`` that counts files which the kernel drops before it kills anything.
    """

    limits: tuple[str, ...]
    used: str
    cached: str


_V1 = CgroupFiles(("memory.limit_in_bytes",), "memory.usage_in_bytes", "total_inactive_file")
_V2 = CgroupFiles(("memory.max", "memory.high"), "memory.current", "inactive_file")


@dataclass(frozen=True, slots=True)
class MemoryReading:
    """The memory at one moment.

    Attributes:
        own: bytes that this process and its helpers hold.
        together: bytes of all processes that share the limit, if each holds as much; libraries count once.
        share: the part of the tightest limit that is used, 1.0 is all of it.
        limit: the tightest limit in bytes.
    """

    own: int
    together: int
    share: float
    limit: int


class Memory:
    """Reads the used memory and its limits from a few small files.

    What a cgroup holds counts where this gateway's processes hold most of it. The gateway cannot bound a Triton in the
    same container; there only its own part counts.

    Args:
        helpers: returns the ids of this process's helpers.
        processes: number of processes that share the limit: the gateway's workers.
        root: root of the file system, for tests.
    """

    def __init__(
        self, helpers: Callable[[], Iterable[int]] = tuple, processes: int = 1, root: Path = Path("/")
    ) -> None:
        self._helpers = helpers
        self._processes = processes
        self._proc = root / "proc"
        self._machine = _machine_bytes(self._proc)
        self._levels = list(_levels(root))

    def read(self) -> MemoryReading:
        """Read the memory and its limits, which may change while a process runs."""
        own, shared = self._held("self")
        own += sum(self._held(str(helper))[0] for helper in self._helpers())
        together = (own - shared) * self._processes + shared
        share, limit = together / self._machine, self._machine
        for folder, files in self._levels:
            most = min(map(_number, (folder / name for name in files.limits)))
            if most < self._machine:
                used = _number(folder / files.used)
                if used > most / 2:  # below that, the cached part does not matter
                    used -= _field(folder / "memory.stat", files.cached)
                used = max(used, together) if used <= 2 * together else together
                share, limit = max((share, limit), (used / most, most))
        return MemoryReading(own, together, share, limit)

    def _held(self, process: str) -> tuple[int, int]:
        """Resident bytes of a process, and those of them that it shares, mostly libraries."""
        try:
            _, resident, shared, *_ = (self._proc / process / "statm").read_bytes().split()
            return int(resident) * _PAGE, int(shared) * _PAGE
        except (OSError, ValueError):  # a helper that has ended
            return 0, 0


def give_back() -> None:
    """Return free memory to the system, with glibc only; takes milliseconds, without the GIL."""
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _levels(root: Path) -> Iterator[tuple[Path, CgroupFiles]]:
    """The folders of this process's cgroup and of those around it, from the inside out, as far as they are mounted."""
    own = _own_groups(root / "proc/self/cgroup")
    for line in _lines(root / "proc/self/mountinfo"):
        head, _, tail = line.partition(" - ")
        kind, options = tail.split(" ")[0], tail.rpartition(" ")[2].split(",")
        version = _V2 if kind == "cgroup2" else _V1 if kind == "cgroup" and "memory" in options else None
        group = own.get("" if kind == "cgroup2" else "memory")
        if version is None or group is None:
            continue
        mounted, point = head.split(" ")[3:5]
        inside = group.removeprefix(mounted.rstrip("/")).strip("/")  # a container may see its own group as the root
        base = root / point.lstrip("/")
        folder = base / inside
        for each in (folder, *folder.parents):
            if (each / version.used).is_file():
                yield each, version
            if each == base:
                break


def _own_groups(file: Path) -> dict[str, str]:
    """The cgroup of this process by controller; version 2 has none of these names, and is at the empty one."""
    groups = {}
    for line in _lines(file):
        _, controllers, group = line.split(":", 2)
        groups.update(dict.fromkeys(controllers.split(","), group))
    return groups


def _machine_bytes(proc: Path) -> int:
    return next(
        (int(line.split()[1]) * 1024 for line in _lines(proc / "meminfo") if line.startswith("MemTotal")), 2**62
    )


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:
        return []


def _number(file: Path) -> int:
    """The number in a file; without limit where it has another word, such as ``max``, or cannot be read."""
    try:
        return min(int(file.read_bytes()), _UNLIMITED)
    except (OSError, ValueError):
        return _UNLIMITED


def _field(file: Path, name: str) -> int:
    return next((int(line.split()[1]) for line in _lines(file) if line.split(" ", 1)[0] == name), 0)
