"""Keeps the mirror process running: starts, restarts and ends it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Final

from gateway.settings import Settings
from gateway.telemetry.supervision import RestartPause, end_tasks, keep_running

_log = logging.getLogger(__name__)
_MODULE: Final = "gateway.workers.mirror_process"
_END_S: Final = 1.0  # the process has nothing to save, and delays the gateway's shutdown


def wants_mirror(settings: Settings) -> bool:
    """Tell whether a model has a mirror."""
    return any(model.mirror is not None for model in settings.models)


class MirrorSupervisor:
    """Keeps the mirror process running while its context is open.

    Attributes:
        socket: path of the socket on which it takes copies.

    Args:
        settings: path of the settings file; None: there is only the environment.
    """

    def __init__(self, settings: Path | None) -> None:
        self._settings = settings
        self._folder = tempfile.TemporaryDirectory(prefix="gateway-mirror-")
        self.socket = Path(self._folder.name) / "copies"
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> MirrorSupervisor:
        self._task = asyncio.create_task(keep_running("the watcher of the process for mirrored requests", self._keep))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await end_tasks(self._task)
        self._folder.cleanup()

    async def _keep(self) -> None:
        pauses = RestartPause()
        while True:
            status = await self._run()
            _log.error(
                "the process for mirrored requests is restarted: it ended with status %d",
                status,
                extra={"event": "mirror_restarted"},
            )
            await asyncio.sleep(pauses.next_s())

    async def _run(self) -> int:
        # That folder is for the metrics of the workers only, without the metrics of copies.
        environment = {key: value for key, value in os.environ.items() if key != "PROMETHEUS_MULTIPROC_DIR"}
        settings = () if self._settings is None else (str(self._settings),)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", _MODULE, str(os.getpid()), str(self.socket), *settings),
            stdin=asyncio.subprocess.DEVNULL,
            start_new_session=True,  # a terminal's Ctrl-C is for the gateway
            env=environment,
        )
        try:
            return await process.wait()
        finally:
            if process.returncode is None:
                await _end(process)


async def _end(process: asyncio.subprocess.Process) -> None:
    waiting = asyncio.create_task(process.wait())
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)
        await asyncio.wait((waiting,), timeout=_END_S)
        if waiting.done():
            return
