"""Asks an engine that has fallen silent for one token, and again until it answers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType

from gateway.generation.engine import EngineError, ErrorKind
from gateway.generation.progress import ProgressWatch, State

_LOG = logging.getLogger(__name__)

_LONGEST_S = 60.0  # from one probe to the next
_REFUSALS = (ErrorKind.INVALID_REQUEST, ErrorKind.CONTEXT_LENGTH)  # of the probe itself, by an engine that works

Probe = Callable[[float], Awaitable[EngineError | None]]
"""Asks for one token, with a deadline in seconds; returns the failure, or raises it where Triton is gone."""


class StallGuard:
    """Looks after one discovered engine for as long as its context is entered.

    There is one probe at a time, which is cancelled at its deadline: a dead engine gets few. The first has as long as
    the silence took, each further one twice as long as the one before it, and the next is sent at its deadline.

    Args:
        watch: of the engine.
        probe: asks it.
        whose: fields for the log.
    """

    def __init__(self, watch: ProgressWatch, probe: Probe, whose: Mapping[str, str]) -> None:
        self._watch = watch
        self._probe = probe
        self._whose = whose
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._inquiry: asyncio.Task[None] | None = None

    async def __aenter__(self) -> StallGuard:
        self._watch.reset()
        self._leave = self._watch.listen(self._changed)
        if self._watch.silence_s:
            self._look()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()
        self._watch.reset()
        if self._timer is not None:
            self._timer.cancel()
        if self._inquiry is not None:
            self._inquiry.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._inquiry

    def _look(self) -> None:
        self._timer = self._loop.call_later(self._watch.look(), self._look)

    def _changed(self, state: State) -> None:
        if state == "suspect":
            _LOG.warning(
                "engine may have stalled: %s", self._watch.reason, extra={"event": "engine_suspected", **self._whose}
            )
            self._inquiry = asyncio.create_task(self._inquire())
        elif state == "stalled":
            _LOG.warning("engine not ready: %s", self._watch.reason, extra={"event": "engine_stalled", **self._whose})
        else:
            _LOG.info("engine answers again", extra={"event": "engine_recovered", **self._whose})
            if self._inquiry is not None:
                self._inquiry.cancel()

    async def _inquire(self) -> None:
        """Probe until it is cancelled, because the engine was heard."""
        if self._timer is not None:
            self._timer.cancel()
        self._look()  # in doubt more often
        patience = limit = self._watch.limit_s
        while True:
            deadline = self._loop.time() + patience
            self._watch.probed(await self._ask(patience))
            await asyncio.sleep(deadline - self._loop.time())
            patience = max(limit, min(2 * patience, _LONGEST_S))

    async def _ask(self, patience: float) -> str | None:
        try:
            failure = await self._probe(patience)
        except EngineError as error:
            failure = error
        return None if failure is None or failure.kind in _REFUSALS else failure.message.rstrip(".")
