"""A Triton's transport and background tasks, which all dialects use."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from gateway.generation.engine import EngineError, ErrorKind
from gateway.triton.transport import Transport


class BackgroundTasks:
    """Keeps tasks alive until they end, and waits for them at shutdown."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run ``work`` as a task of its own, which must handle its errors and bound its time."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def drain(self, timeout: float) -> None:
        """Wait for all running tasks, at most ``timeout`` seconds, then cancel the rest."""
        if not self._tasks:
            return
        _, pending = await asyncio.wait(set(self._tasks), timeout=timeout)
        for task in pending:
            task.cancel()
        if pending:
            await asyncio.wait(pending)


def _ignore() -> None:
    return None


@dataclass(slots=True)
class Connection:
    """The transport and background tasks of requests to one Triton.

    Attributes:
        transport: carries requests.
        background: tasks that outlive a request.
        timeout: most seconds of a request, a backstop behind the caller's deadlines.
        on_unavailable: called when a request finds Triton or the model gone.
    """

    transport: Transport
    background: BackgroundTasks = field(default_factory=BackgroundTasks)
    timeout: float = 3600.0
    on_unavailable: Callable[[], None] = _ignore

    def report(self, error: EngineError) -> None:
        """Report a failure that a health check should look into."""
        if error.kind is ErrorKind.UNAVAILABLE:
            self.on_unavailable()
