"""Objects that are made of certificate files, and made anew when these change."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Generic, TypeVar

from gateway.certificates.files import CertificateError, CertificateFiles

_log = logging.getLogger(__name__)
_LOOK_S: Final = 2.0

T = TypeVar("T")


class Reloading(Generic[T]):
    """A value made of files, such as a context of TLS. What new files cannot make leaves the former one in force.

    Args:
        files: that are followed.
        load: makes the value; raises ``CertificateError`` where the files cannot be used.
        name: of the setting, for the log.

    Attributes:
        value: the last that was made.
        on_change: called after another one was.

    Raises:
        CertificateError: the files cannot be used at the start.
    """

    def __init__(self, files: CertificateFiles, load: Callable[[], T], name: str) -> None:
        self._files = files
        self._load = load
        self._name = name
        self._used = self._last_look = files.stamp()
        self._refused = False
        self.on_change: list[Callable[[], None]] = []
        self.value = load()

    async def look(self, *, now: bool = False) -> None:
        """Follow the files where they have changed.

        Args:
            now: do not wait until they have stayed the same from one look to the next, which a change that is under way
                does not.
        """
        if await asyncio.to_thread(self._follow, now):
            for tell in self.on_change:
                tell()

    def _follow(self, now: bool) -> bool:
        stamp = self._files.stamp()
        settled, self._last_look = stamp == self._last_look, stamp
        if not (now or settled) or (stamp == self._used and not (now and self._refused)):
            return False
        try:
            value = self._load()
        except CertificateError as error:
            if self._files.stamp() == stamp:  # else they are being changed: the next look sees them whole
                self._used, self._refused = stamp, True
                _log.error(
                    "%s: %s; the former certificates stay in use",
                    self._name,
                    error,
                    extra={"event": "certificates_refused"},
                )
            return False
        if self._files.stamp() != stamp:
            return False
        self.value, self._used, self._refused = value, stamp, False
        _log.info(
            "%s: the files have changed, new connections use the new ones",
            self._name,
            extra={"event": "certificates_reloaded"},
        )
        return True


class CertificateWatch:
    """Looks at the files of all that is followed, every few seconds while its context is open."""

    def __init__(self) -> None:
        self._followed: weakref.WeakSet[Reloading[Any]] = weakref.WeakSet()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> CertificateWatch:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def follow(self, reloading: Reloading[T]) -> Reloading[T]:
        """Look at its files from now on."""
        self._followed.add(reloading)
        return reloading

    async def look(self) -> None:
        """Look at all of them now."""
        for each in list(self._followed):
            await each.look(now=True)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            for each in list(self._followed):
                await each.look()
