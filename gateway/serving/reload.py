"""Reloads the settings of a running gateway, after SIGHUP or a change of the file.

Each process polls the file and handles signals by itself, so several workers need no leader.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from types import TracebackType

import anyio.to_thread

from gateway.http.access.guard import Guard
from gateway.http.certificates import CertificateWatch
from gateway.serving.mirror.keeper import wants_mirror
from gateway.serving.registry import Registry
from gateway.settings import ConfigError, Settings, SettingsSource
from gateway.telemetry.early_signals import EarlyHangup
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.supervision import end_tasks, keep_running

_log = logging.getLogger(__name__)
_FIXED = ("server", "limits", "timeouts", "state", "telemetry", "auth")  # sections that a running process cannot change
_FREE = {("auth", "keys"), ("auth", "keys_file")}  # but for these


class SettingsReloader:
    """Watches the source of the settings while its context is open, and updates the registry.

    Args:
        settings: the current settings.
        source: source of the settings.
        registry: the served models, started.
        metrics: counts reloads.
        guard: access control, which gets new keys.
        certificates: certificates, which are checked after SIGHUP.
    """

    def __init__(
        self,
        settings: Settings,
        source: SettingsSource,
        registry: Registry,
        metrics: Metrics,
        guard: Guard,
        certificates: CertificateWatch,
    ) -> None:
        self._running = settings
        self._source = source
        self._registry = registry
        self._metrics = metrics
        self._guard = guard
        self._certificates = certificates
        self._seen = self._last_look = source.stamp()
        self._asked = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> SettingsReloader:
        self._task = asyncio.create_task(keep_running("the settings watcher", self._watch))
        if threading.current_thread() is threading.main_thread():  # signals arrive nowhere else
            self._former_handler = signal.getsignal(signal.SIGHUP)
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._asked.set)
            if isinstance(self._former_handler, EarlyHangup) and self._former_handler.came:
                self._asked.set()  # the settings may have been read before it came
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if threading.current_thread() is threading.main_thread():
            asyncio.get_running_loop().remove_signal_handler(signal.SIGHUP)
            signal.signal(signal.SIGHUP, self._former_handler)
        await end_tasks(self._task)

    async def reload(self) -> bool:
        """Read the settings and serve their models; returns whether they are in force.

        Unusable settings leave the former ones in force; the log says why, and a metric counts it.
        """
        self._seen = await anyio.to_thread.run_sync(self._source.stamp)  # before reading: a later change is seen again
        try:
            settings = await anyio.to_thread.run_sync(self._source.load)
            keys = await self._guard.read(settings.auth)
            changes = await self._registry.replace(settings.models, settings.splits)
        except ConfigError as error:
            for line in str(error).splitlines():
                _log.error(
                    "reload rejected, the previous settings stay in use: %s", line, extra={"event": "settings_refused"}
                )
            self._metrics.count_reload(ok=False)
            return False
        self._guard.take(keys)
        self._warn_of_restart(settings)
        self._metrics.count_reload(ok=True)
        _log.info(
            "settings reloaded" if changes else "settings reloaded: no model differs",
            extra={
                "event": "settings_reloaded",
                "added": changes.added,
                "changed": changes.changed,
                "removed": changes.removed,
            },
        )
        return True

    def _warn_of_restart(self, settings: Settings) -> None:
        if settings.asks_for_keys and not self._running.asks_for_keys:
            _log.warning(
                "auth.keys has changed in the settings: a gateway that started without keys needs a restart",
                extra={"event": "restart_needed"},
            )
        if wants_mirror(settings) and not wants_mirror(self._running):
            _log.warning(
                "models[].mirror: the first mirror needs a restart; until then nothing is mirrored",
                extra={"event": "restart_needed"},
            )
        for section in _FIXED:
            before, after = getattr(self._running, section), getattr(settings, section)
            for key in type(before).model_fields:
                if (section, key) not in _FREE and getattr(before, key) != getattr(after, key):
                    _log.warning(
                        "%s.%s has changed in the settings: it needs a restart",
                        section,
                        key,
                        extra={"event": "restart_needed"},
                    )

    async def _watch(self) -> None:
        interval = self._running.server.reload_s
        while True:
            asked = await self._pause(interval if self._source.path is not None else 0)
            if asked:
                await self._certificates.look()
            if asked or await self._changed():
                await self.reload()

    async def _pause(self, seconds: float) -> bool:
        """Wait for SIGHUP, at most so long (0 is for ever); whether it came."""
        # Not wait_for: before Python 3.12 it swallows a cancellation that comes together with the event.
        came = asyncio.create_task(self._asked.wait())
        try:
            await asyncio.wait((came,), timeout=seconds or None)
        finally:
            came.cancel()
        asked = self._asked.is_set()
        self._asked.clear()
        return asked

    async def _changed(self) -> bool:
        """Whether the file is another one than the one read, and has not changed since the last look.

        A file that is being written may be valid before it is whole, and one that is being replaced may be absent.
        """
        stamp = await anyio.to_thread.run_sync(self._source.stamp)
        settled, self._last_look = stamp == self._last_look, stamp
        return settled and stamp is not None and stamp != self._seen
