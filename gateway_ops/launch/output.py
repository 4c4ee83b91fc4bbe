"""Copies a server's output to a file or standard error, and holds its end to explain failures."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from pathlib import Path
from typing import IO, Final

_CHUNK_BYTES: Final = 64 * 1024
_TAIL_BYTES: Final = 256 * 1024
_JOIN_S: Final = 5.0
_KEPT: Final = 5


class PipeCopier:
    """Copies a pipe until its end, in a thread.

    Args:
        pipe: the server's output.
        target: a copy of the output.
    """

    def __init__(self, pipe: IO[bytes], target: IO[bytes]) -> None:
        self._tail = b""
        self._pipe, self._target = pipe, target
        self._thread = threading.Thread(target=self._copy, daemon=True, name="output of tritonserver")
        self._thread.start()

    @property
    def tail(self) -> str:
        """The end of the output since ``forget``, at most 256 KiB."""
        return self._tail.decode(errors="replace")

    def forget(self) -> None:
        """Forget the output so far."""
        self._tail = b""

    def close(self) -> None:
        """Wait for the end of the pipe, which comes when all processes of the server have ended."""
        self._thread.join(_JOIN_S)
        self._pipe.close()

    def _copy(self) -> None:
        while chunk := os.read(self._pipe.fileno(), _CHUNK_BYTES):
            self._tail = (self._tail + chunk)[-_TAIL_BYTES:]
            with contextlib.suppress(OSError, ValueError):  # the reader has gone, or the disk is full
                self._target.write(chunk)
                self._target.flush()


def open_log(folder: Path | None) -> IO[bytes]:
    """Open the log of a start, ``triton.log`` in a folder; the five logs before it stay.

    Raises:
        OSError: the folder cannot be written.
    """
    if folder is None:
        return os.fdopen(os.dup(sys.stderr.fileno()), "wb")
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "triton.log"
    if log.exists():
        older = [folder / f"triton.log.{number}" for number in range(1, _KEPT + 1)]
        for newer, old in reversed(list(zip([log, *older], older, strict=False))):
            if newer.exists():
                newer.replace(old)
    return log.open("ab")
