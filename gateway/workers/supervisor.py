"""The supervisor process: starts, replaces and ends workers; it serves nothing itself."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from prometheus_client.multiprocess import mark_process_dead

from gateway.generation.health import EngineCondition
from gateway.http.listening import listen
from gateway.serving.mirror.keeper import MirrorSupervisor
from gateway.settings import ServerSettings
from gateway.telemetry.early_signals import SUPERVISOR_VARIABLE
from gateway.telemetry.supervision import RestartPause
from gateway.workers.metrics_folder import metrics_folder
from gateway.workers.shared_state import SharedState

_log = logging.getLogger(__name__)
_KILL_AFTER_S: Final = 15.0  # beyond the time that running responses have


class WorkerProcess:
    """A running worker.

    Attributes:
        readiness: the condition of each of its models; None before it serves.
        error: the worker's reason why it cannot serve; None without one.
    """

    def __init__(
        self, process: asyncio.subprocess.Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.readiness: Mapping[str, EngineCondition] | None = None
        self.error: str | None = None
        self._process = process
        self._reader = reader
        self._writer = writer

    @staticmethod
    async def start(
        index: int,
        sockets: Sequence[socket.socket],
        internal: Sequence[socket.socket],
        metrics: Path,
        shared: SharedState,
        mirror_socket: Path | None,
        *,
        replaces: bool,
    ) -> WorkerProcess:
        """Start a worker; it serves a second or two later.

        Args:
            index: number of the worker, from 0.
            sockets: the worker's listening sockets.
            internal: the sockets of the internal port.
            metrics: folder of all workers' metrics.
            shared: memory of all workers.
            mirror_socket: path of the mirror process's socket; None without mirrors.
            replaces: whether connections may wait for the worker.
        """
        parent_end, child_end = socket.socketpair()
        with child_end:
            listening, inner = ([each.fileno() for each in group] for group in (sockets, internal))
            # Held back, a hang-up that is passed on to the worker waits until the worker can take it.
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
            try:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "gateway.workers.worker"),
                    *("--index", str(index), "--control", str(child_end.fileno())),
                    *("--shared", json.dumps(shared)),
                    *(("--mirror", str(mirror_socket)) if mirror_socket else ()),
                    *(("--replaces",) if replaces else ()),
                    *("--listen", *map(str, listening)),
                    *("--internal", *map(str, inner)),
                    stdin=asyncio.subprocess.DEVNULL,
                    pass_fds=(child_end.fileno(), *shared.descriptors, *listening, *inner),
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
        reader, writer = await asyncio.open_connection(sock=parent_end)
        return WorkerProcess(process, reader, writer)

    @property
    def pid(self) -> int:
        """The worker's process id."""
        return self._process.pid

    async def read(self, changed: Callable[[], None]) -> None:
        """Read the worker's messages until it has ended.

        Args:
            changed: called after each report of readiness.
        """
        try:
            while line := await self._reader.readline():
                message = json.loads(line)
                self.error = message.get("error", self.error)
                if "readiness" in message:
                    self.readiness = {name: EngineCondition(*each) for name, each in message["readiness"].items()}
                    changed()
        except ConnectionError:  # killed with something unread
            return

    async def ended(self) -> int:
        """Wait until the worker has ended; returns the exit status, negative for a signal."""
        status = await self._process.wait()
        self._writer.close()
        return status

    def tell(self, message: Mapping[str, object]) -> None:
        """Send the worker a message; it is lost when the worker has ended."""
        if not self._writer.is_closing():
            self._writer.write(json.dumps(message).encode() + b"\n")

    def signal(self, number: signal.Signals) -> None:
        """Send the worker a signal, unless it has ended."""
        if self._process.returncode is None:
            self._process.send_signal(number)


class WorkersError(Exception):
    """The workers cannot serve; the message is the reason of one of them."""


class Supervisor:
    """Runs a number of workers on one port until SIGTERM or SIGINT, and passes on all signals."""

    def __init__(self, settings: ServerSettings, workers: int, mirrors: MirrorSupervisor | None = None) -> None:
        """Prepare; nothing is opened or started.

        Args:
            settings: where to listen, and how long running responses have to end.
            workers: how many processes.
            mirrors: keeps the process that takes copies of requests, of all workers; None: there are none.
        """
        self._mirrors = mirrors
        self._settings = settings
        self._count = workers
        self._farewell = signal.SIGTERM  # the first signal to end
        self._workers: list[WorkerProcess | None] = [None] * workers
        self._served: set[int] = set()  # those that have served once: they are replaced whenever they fail
        self._whole: set[str] = set()  # models that all workers have served at a time
        self._stopping = asyncio.Event()
        self._shared = SharedState.create(workers, settings.memory.token_cache_bytes)
        self._counts, self._buckets = self._shared.attach_counts(), self._shared.attach_buckets()

    async def run(self) -> None:
        """Serve until a signal ends the service; returns when all workers have ended.

        Raises:
            OSError: the address cannot be listened on.
            WorkersError: the workers cannot serve as configured.
        """
        settings = self._settings
        sockets = self._listen(settings.host, settings.port)
        internal: list[list[socket.socket]] = [[] for _ in range(self._count)]
        if settings.internal_port is not None:
            internal = self._listen(settings.internal_host or settings.host, settings.internal_port)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop, number)
        loop.add_signal_handler(signal.SIGHUP, self._signal, signal.SIGHUP)
        async with self._mirrors or contextlib.nullcontext():
            keepers = await self._run_workers(sockets, internal)
        for keeper in keepers:
            keeper.result()

    async def _run_workers(
        self, sockets: Sequence[Sequence[socket.socket]], internal: Sequence[Sequence[socket.socket]]
    ) -> Sequence[asyncio.Task[None]]:
        """Keep the workers until they are to end and have ended; the tasks that kept them."""
        with metrics_folder() as folder:
            keepers = [asyncio.create_task(self._keep(i, sockets[i], internal[i], folder)) for i in range(self._count)]
            stop = asyncio.create_task(self._stopping.wait())
            await asyncio.wait((*keepers, stop), return_when=asyncio.FIRST_COMPLETED)
            self._stopping.set()
            await self._drain(keepers, [*sockets, *internal])
            await stop
        return keepers

    async def _drain(self, keepers: Sequence[asyncio.Task[None]], sockets: Sequence[Sequence[socket.socket]]) -> None:
        # First: the workers take connections as long as they serve. Later ones are to be rejected, and not to wait in a
        # queue that no worker reads.
        for group in sockets:
            for each in group:
                each.close()
        self._signal(self._farewell)
        lame_duck_s = self._settings.lame_duck_s if self._farewell == signal.SIGTERM else 0
        _, late = await asyncio.wait(keepers, timeout=lame_duck_s + self._settings.shutdown_s + _KILL_AFTER_S)
        if late:
            _log.error("%d workers did not stop in time and are killed", len(late), extra={"event": "workers_killed"})
            self._signal(signal.SIGKILL)
            await asyncio.wait(late)

    def _listen(self, host: str, port: int) -> list[list[socket.socket]]:
        sockets = listen(host, port, self._count)
        _log.info(
            "%d workers listen on %s port %d",
            self._count,
            host,
            sockets[0][0].getsockname()[1],
            extra={"event": "listening"},
        )
        return sockets

    def _stop(self, number: signal.Signals) -> None:
        """Begin to end; where that has begun, hurry the workers."""
        if self._stopping.is_set():
            self._signal(number)
        else:
            self._farewell = number
            self._stopping.set()

    def _signal(self, number: signal.Signals) -> None:
        for worker in self._workers:
            if worker is not None:
                worker.signal(number)

    async def _keep(
        self, index: int, sockets: Sequence[socket.socket], internal: Sequence[socket.socket], metrics: Path
    ) -> None:
        """Keep a worker running; returns when the supervisor stops.

        Raises:
            WorkersError: it said that it cannot serve, and never has.
        """
        pauses, replaces = RestartPause(first_s=0.1, longest_s=10.0), False
        while not self._stopping.is_set():
            worker = self._workers[index] = await WorkerProcess.start(
                index,
                sockets,
                internal,
                metrics,
                self._shared,
                self._mirrors.socket if self._mirrors else None,
                replaces=replaces,
            )
            replaces = True
            if self._stopping.is_set():  # meanwhile, when it could not be signalled yet
                worker.signal(self._farewell)
            await worker.read(lambda: self._changed(index))
            status = await worker.ended()
            self._workers[index] = None
            self._counts.clear(index)
            self._buckets.clear(index)
            mark_process_dead(worker.pid, str(metrics))  # type: ignore[no-untyped-call]
            if self._stopping.is_set():
                return
            if worker.error is not None and index not in self._served:
                raise WorkersError(worker.error)
            _log.error(
                "worker %d is replaced: %s",
                index,
                worker.error or f"it ended with status {status}",
                extra={"event": "worker_replaced"},
            )
            self._tell(check=False)
            await self._pause(pauses.next_s())

    def _changed(self, index: int) -> None:
        """Tell all that a worker's readiness has changed. Only the first one watches Triton closely, for all."""
        self._served.add(index)
        self._tell(check=index == 0)

    def _tell(self, *, check: bool) -> None:
        readiness = self._readiness()
        for index, worker in enumerate(self._workers):
            if worker is not None:
                worker.tell({"readiness": readiness, "check": check and index != 0})

    def _readiness(self) -> dict[str, EngineCondition]:
        """The condition of each model, of all workers together.

        A model is ready once all of them serve it, and from then on as long as one does.
        """
        reports = [worker.readiness if worker is not None else None for worker in self._workers]
        names = dict.fromkeys(name for report in reports if report is not None for name in report)
        return {name: self._together(name, reports) for name in names}

    def _together(self, name: str, reports: Sequence[Mapping[str, EngineCondition] | None]) -> EngineCondition:
        absent = EngineCondition(ready=False, state="loading", reason="it does not serve the model yet")
        starting = absent._replace(reason="it is starting")
        found = [starting if report is None else report.get(name, absent) for report in reports]
        lacking = {index: each for index, each in enumerate(found) if not each.ready}
        serving = [each for each in found if each.ready]
        if not lacking:
            self._whole.add(name)
        if not serving or name not in self._whole:
            index, first = next(iter(lacking.items()))
            return first._replace(reason=f"worker {index}: {first.reason}") if first in (starting, absent) else first
        reasons = "; ".join(f"worker {index}: {each.reason}" for index, each in lacking.items())
        return max(serving, key=lambda each: each.share)._replace(degraded=reasons)

    async def _pause(self, seconds: float) -> None:
        stop = asyncio.create_task(self._stopping.wait())
        await asyncio.wait((stop,), timeout=seconds)
        stop.cancel()
