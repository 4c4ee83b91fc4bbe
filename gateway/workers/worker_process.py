"""One worker as its supervisor sees it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from gateway.workers.supervised import SUPERVISOR_VARIABLE


class WorkerProcess:
    """A running worker.

    Attributes:
        readiness: for each of its models why it is not ready, None when it is; None before it serves.
        error: why it cannot serve, when it said so.
    """

    def __init__(
        self, process: asyncio.subprocess.Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.readiness: Mapping[str, str | None] | None = None
        self.error: str | None = None
        self._process = process
        self._reader = reader
        self._writer = writer

    @staticmethod
    async def start(  # noqa: PLR0913, PLR0917 - one for each thing that workers share
        index: int,
        sockets: Sequence[socket.socket],
        internal: Sequence[socket.socket],
        metrics: Path,
        counts: tuple[int, int],
        wakers: Sequence[int],
        buckets: int,
        tokens: tuple[int, int] | None,
        mirror_socket: Path | None,
    ) -> WorkerProcess:
        """Start one; it serves a second or two later.

        Args:
            index: its number, from 0.
            sockets: that it listens on.
            internal: those of the internal port.
            metrics: folder in which all workers keep their counts.
            counts: file descriptor of what all workers know, and the number of workers.
            wakers: event descriptors by which they wake each other.
            buckets: file descriptor of the limits of keys.
            tokens: file descriptor of the cache of token ids, and its size; None: there is none.
            mirror_socket: where copies of requests are taken; None: nowhere.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            listening, inner = ([each.fileno() for each in group] for group in (sockets, internal))
            # Held back, a hang-up that is passed on to the worker waits until the worker can take it.
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
            try:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "gateway.workers.worker"),
                    *("--index", str(index), "--control", str(theirs.fileno())),
                    *("--counts", *map(str, counts), "--wakers", *map(str, wakers), "--buckets", str(buckets)),
                    *(("--tokens", *map(str, tokens)) if tokens else ()),
                    *(("--mirror", str(mirror_socket)) if mirror_socket else ()),
                    *("--listen", *map(str, listening)),
                    *("--internal", *map(str, inner)),
                    stdin=asyncio.subprocess.DEVNULL,
                    pass_fds=(
                        *(theirs.fileno(), counts[0], buckets, *wakers, *listening, *inner),
                        *(tokens[:1] if tokens else ()),
                    ),
                    # A terminal's Ctrl-C is for the supervisor, which tells the workers.
                    start_new_session=True,
                    env={
                        **os.environ,
                        SUPERVISOR_VARIABLE: str(os.getpid()),
                        "PROMETHEUS_MULTIPROC_DIR": str(metrics),
                    },
                )
            finally:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
        reader, writer = await asyncio.open_connection(sock=ours)
        return WorkerProcess(process, reader, writer)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    async def read(self, changed: Callable[[], None]) -> None:
        """Follow what it says until it has ended.

        Args:
            changed: called after each report of its readiness.
        """
        try:
            while line := await self._reader.readline():
                message = json.loads(line)
                self.error = message.get("error", self.error)
                if "readiness" in message:
                    self.readiness = message["readiness"]
                    changed()
        except ConnectionError:  # killed with something unread
            return

    async def ended(self) -> int:
        """Wait for its end; the exit status, negative for a signal."""
        status = await self._process.wait()
        self._writer.close()
        return status

    def tell(self, message: Mapping[str, object]) -> None:
        """Send it a message; lost when it has ended."""
        if not self._writer.is_closing():
            self._writer.write(json.dumps(message).encode() + b"\n")

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, unless it has ended."""
        if self._process.returncode is None:
            self._process.send_signal(number)
