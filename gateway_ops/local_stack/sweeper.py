"""Removes the remains of a killed tritonserver: stub processes and their regions of shared memory.

A stub ends by itself after its server, unless the server died at the wrong moment, for example while it was loading
models. Therefore a small process waits for the end of the process that started the server, and then removes everything
with the server's name. That process runs this module, which therefore imports no other module of the package.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final

SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - where Triton's Python backend has its regions
NAME_VARIABLE: Final = "TRITON_SERVER_NAME"  # in the environment of all that a server starts
_PROCESSES: Final = Path("/proc")
_ENVIRONMENTS: Final = Path("/tmp")  # noqa: S108 - where the Python backend has a folder for environments, used or not
_POLL_S: Final = 0.02


def new_server_name() -> str:
    """Make a name for a server, which its stubs and its regions of shared memory have, too.

    It begins with the namespace of process ids, so that a server in a container that shares the host's memory is not
    taken for a dead one.
    """
    return f"{_family()}{uuid.uuid4().hex[:12]}"


def sweep(name: str) -> None:
    """Kill remaining processes of a server, wait for their end, and unlink its regions."""
    while found := [pid for pid, command in _commands() if name in command or _is_of(pid, name)]:
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_POLL_S)
    _unlink(f"{name}_*")
    _remove_environments()


def sweep_stale() -> None:
    """Unlink regions of this user's servers without any process, as after a power cut."""
    # The regions first: a server that starts meanwhile has its process before its regions.
    regions = list(SHARED_MEMORY.glob(f"{_family()}*"))
    commands = [command for _, command in _commands()]
    pattern = re.compile(rf"({re.escape(_family())}[0-9a-f]+)_")
    for region in regions:
        match = pattern.match(region.name)
        if match and not any(match[1] in command for command in commands):
            _unlink(region.name)
    _remove_environments()


class Sweeper:
    """Runs a process that sweeps when this process ends in any way.

    A session of its own shields the process from a terminal's Ctrl-C.

    Args:
        name: the name of a server that is not started yet.
    """

    def __init__(self, name: str) -> None:
        # It waits for the end of its standard input, whose other end only this process has.
        self._process = subprocess.Popen(  # noqa: S603 - this program and a name that it made
            [sys.executable, "-I", "-S", __file__, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def close(self) -> None:
        """Sweep now, and wait until it is done."""
        self._process.communicate()


def _family() -> str:
    return f"gateway-{os.stat('/proc/self/ns/pid').st_ino:x}-"  # noqa: PTH116 - Path.stat has nothing shorter


def _commands() -> Iterator[tuple[int, str]]:
    """Yield running processes with their command lines, without this one and the sweepers that wait."""
    for entry in _PROCESSES.iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):  # it has ended meanwhile
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if __file__ not in command:
                    yield int(entry.name), command


def _is_of(pid: int, name: str) -> bool:
    """Whether a process was started by a server of this name, as its environment says."""
    with contextlib.suppress(OSError):  # another user's, or it has ended meanwhile
        variables = (_PROCESSES / str(pid) / "environ").read_bytes().split(b"\0")
        return f"{NAME_VARIABLE}={name}".encode() in variables
    return False


def _remove_environments() -> None:
    """Remove the empty folders that killed servers left, once none runs: they do not say whose they are."""
    folders = list(_ENVIRONMENTS.glob("python_env_*"))  # first, as above
    if any("tritonserver" in command for _, command in _commands()):
        return
    for folder in folders:
        with contextlib.suppress(OSError):  # in use, or another user's
            folder.rmdir()


def _unlink(pattern: str) -> None:
    for region in SHARED_MEMORY.glob(pattern):
        with contextlib.suppress(OSError):  # another user's, or gone
            region.unlink()


if __name__ == "__main__":
    sys.stdin.read()
    sweep(sys.argv[1])
