"""A command on a terminal of its own, typed at and read as a user would."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from typing_extensions import Self

from tests.warm_gateways import ForkedGateway, WarmGateways

_CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\r")
_SECONDS = 60.0


def environ(**more: str) -> dict[str, str]:
    """Variables of an operator who has set up nothing, on a terminal with colours; and those of a test."""
    ours = ("GATEWAY_", "NO_COLOR", "COLUMNS")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return {**kept, "TERM": "xterm-256color", **more}


class Terminal:
    """The command and its terminal; a context manager.

    Attributes:
        raw: all that the command has written.

    Args:
        command: what to run.
        environ: its whole environment, but for a size of another terminal.
        columns: letters of a line.
        rows: lines.
    """

    def __init__(
        self, command: Sequence[str | Path], environ: Mapping[str, str], *, columns: int = 160, rows: int = 50
    ) -> None:
        self.raw = b""
        self._seen = 0  # letters of `plain` that were expected
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        environ = {name: value for name, value in environ.items() if name not in {"COLUMNS", "LINES"}}
        try:
            self._process = self._start(command, environ, theirs)
        finally:
            os.close(theirs)

    def _start(
        self, command: Sequence[str | Path], environ: Mapping[str, str], terminal: int
    ) -> subprocess.Popen[bytes] | ForkedGateway:
        return subprocess.Popen(command, env=environ, stdin=terminal, stdout=terminal, stderr=terminal)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(20)
        os.close(self._ours)

    @property
    def plain(self) -> str:
        """The same without colours."""
        return _CONTROL.sub("", self.raw.decode(errors="replace"))

    def expect(self, words: str) -> str:
        """Wait for words behind those that were expected before; what came up to their end."""
        ends = time.monotonic() + _SECONDS
        while (found := self.plain.find(words, self._seen)) < 0:
            assert self._read(ends - time.monotonic()), (
                f"{words!r} does not come; there is {self.plain[self._seen :]!r}"
            )
        before, self._seen = self._seen, found + len(words)
        return self.plain[before : self._seen]

    def type(self, *lines: str) -> None:
        """Type lines."""
        os.write(self._ours, "".join(f"{line}\n" for line in lines).encode())

    def interrupt(self) -> None:
        """Press Ctrl-C, as late as a hand would: once the command waits for something.

        Between a prompt and the wait for a key, readline only notes a signal until the next key comes.
        """
        ends = time.monotonic() + _SECONDS
        while self._process.poll() is None and not self._waits():
            assert time.monotonic() < ends
        self._process.send_signal(signal.SIGINT)

    def _waits(self) -> bool:
        stat = Path(f"/proc/{self._process.pid}/stat").read_text()
        return stat.rpartition(")")[2].split()[0] == "S"

    def end(self) -> int:
        """Wait until the command has ended; its exit status."""
        ends = time.monotonic() + _SECONDS
        while self._read(ends - time.monotonic()):
            pass
        return self._process.wait(max(0.1, ends - time.monotonic()))

    def _read(self, seconds: float) -> bool:
        """Wait for more; False when no more comes."""
        if seconds <= 0 or not select.select([self._ours], [], [], seconds)[0]:
            return False
        with contextlib.suppress(OSError):  # how a terminal says that nobody writes any more
            data = os.read(self._ours, 65536)
            self.raw += data
            return bool(data)
        return False


class GatewayTerminal(Terminal):
    """The same for the command ``gateway``, of which ``command`` has the arguments alone; see `WarmGateways`."""

    def _start(self, command: Sequence[str | Path], environ: Mapping[str, str], terminal: int) -> ForkedGateway:
        name = os.ttyname(terminal)
        return WarmGateways.of_this_process().start(command, environ, stdin=name, stdout=name)
