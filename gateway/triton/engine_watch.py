"""Watches the health of an engine, and sends probes when they are due."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType

import anyio

from gateway.generation.engine import EngineError, ErrorKind
from gateway.generation.health import Belief, EngineHealth
from gateway.telemetry.supervision import end_tasks, keep_running

_LOG = logging.getLogger(__name__)

_PROBE_S = 3600.0  # its health gives a probe up before
_LOOKS = 4  # at completed requests, within the time of a probe
_REFUSALS = (ErrorKind.INVALID_REQUEST, ErrorKind.CONTEXT_LENGTH)  # of the probe itself, by an engine that works

Probe = Callable[[float], Awaitable[EngineError | None]]
"""Asks for one token, with a deadline in seconds; returns the failure, or raises it where Triton is gone."""

Completed = Callable[[], Awaitable[int]]
"""Counts the requests that the engine has completed, of all clients; raises ``EngineError``."""


class EngineWatch:
    """Watches one discovered engine while its context is open, with one probe at a time.

    Args:
        health: health of the engine.
        probe: sends a probe.
        completed: counts the completed requests; None where Triton counts them before their end.
        whose: fields for the log.
    """

    def __init__(
        self, health: EngineHealth, probe: Probe, completed: Completed | None, whose: Mapping[str, str]
    ) -> None:
        self._health = health
        self._probe = probe
        self._completed = completed
        self._whose = whose
        self._look = asyncio.Event()
        self._share = 0.0  # of failed requests, as last reported

    async def __aenter__(self) -> EngineWatch:
        self._leave = self._health.listen(self._changed)
        self._health.wake = self._look.set
        self._task = asyncio.create_task(keep_running("the engine watcher", self._watch))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()
        await end_tasks(self._task)

    async def _watch(self) -> None:
        inquiry: asyncio.Task[None] | None = None
        try:
            while True:
                self._look.clear()
                pause = self._health.look()
                self._tell_share()
                if inquiry is not None and not self._health.probing:  # heard, given up, or ended
                    inquiry.cancel()
                    inquiry = None
                if inquiry is None and self._health.probe_due:
                    self._health.probe_sent()
                    inquiry = asyncio.create_task(self._ask())
                    continue
                timer = asyncio.get_running_loop().call_later(pause, self._look.set)
                try:
                    await self._look.wait()
                finally:
                    timer.cancel()
        finally:
            if inquiry is not None:
                inquiry.cancel()
                await asyncio.wait((inquiry,))

    async def _ask(self) -> None:
        async with anyio.create_task_group() as group:
            if self._completed is not None:
                give_time = functools.partial(self._give_time, self._completed)
                group.start_soon(keep_running, "the count of completed requests", give_time)
            await self._await_probe()
            group.cancel_scope.cancel()

    async def _give_time(self, completed: Completed) -> None:
        """Start the time of the probe again whenever the engine completed requests: it may be queued behind others."""
        known = math.inf
        while True:
            with contextlib.suppress(EngineError):
                before, known = known, await completed()
                if known > before:
                    self._health.probe_delayed()
            await anyio.sleep(self._health.limit_s / _LOOKS)

    async def _await_probe(self) -> None:
        try:
            failure = await self._probe(_PROBE_S)
        except EngineError as error:
            failure = error
        except Exception as defect:  # noqa: BLE001 - else the probe would count as one that is never answered
            _LOG.error(
                "a probe failed because of a bug in the gateway", exc_info=defect, extra={"event": "task_restarted"}
            )
            failure = EngineError(ErrorKind.INTERNAL, "The response could not be read.")
        well = failure is None or failure.kind in _REFUSALS
        words = None if failure is None or well else failure.message.rstrip(".")
        self._health.probed(words, queue_full=failure is not None and failure.kind is ErrorKind.QUEUE_FULL)
        self._look.set()

    def _changed(self, belief: Belief) -> None:
        self._look.set()
        reason = self._health.reason
        if belief == "well":
            _LOG.info("engine responds again", extra={"event": "engine_recovered", **self._whose})
        elif belief == "suspect":
            _LOG.warning("engine may have stalled: %s", reason, extra={"event": "engine_suspected", **self._whose})
        elif belief == "stalled":
            _LOG.warning("engine not ready: %s", reason, extra={"event": "engine_stalled", **self._whose})
        else:
            _LOG.warning("engine not ready: %s", reason, extra={"event": "engine_failing", **self._whose})

    def _tell_share(self) -> None:
        """Say when an engine begins to fail a part of its requests, and when that has ended."""
        condition = self._health.condition
        share = condition.share if condition.ready else self._share
        if bool(share) != bool(self._share):
            words = condition.reason if share else "its engine fails no more requests than usual"
            _LOG.warning("%s", words, extra={"event": "engine_fails_in_part", "share": share, **self._whose})
        self._share = share
