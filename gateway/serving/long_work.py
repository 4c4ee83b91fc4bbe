"""Runs work that is too long for the event loop in few threads, in the order of arrival."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from gateway.generation import EngineError, ErrorKind
from gateway.serving.overload import OVERLOAD
from gateway.text.untrusted_work import end_helpers

Result = TypeVar("Result")
_MOST_WAITING = 256
_PATIENCE_S = 300.0


class ClientLeftError(Exception):
    """The client left, so that the result is not needed."""


class LongWork:
    """Runs long work in a few threads, with a bounded queue.

    anyio's pool is not used: it has 40 threads, and cancelled work continues in its thread while new work starts.

    Attributes:
        count: number of running and waiting works.
    """

    def __init__(self, name: str, threads: int, most_waiting: int = _MOST_WAITING) -> None:
        """Prepare; threads start when there is work.

        Args:
            name: of the threads.
            threads: how many work simultaneously.
            most_waiting: how many works may wait for a thread.
        """
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._most = threads + most_waiting
        self._works: set[_PendingWork] = set()
        self._closed: EngineError | None = None
        self.count = 0

    async def run(self, work: Callable[[threading.Event], Result], patience_s: float = _PATIENCE_S) -> Result:
        """Run ``work`` in its turn; work that is cancelled before never begins.

        Args:
            work: takes an event, which is set when no client waits for the result any more.
            patience_s: seconds in which its turn must come.

        Raises:
            EngineError: QUEUE_FULL when too many wait already, TIMEOUT when its turn does not come, UNAVAILABLE where
                memory is short (``Overload.room``), and that of ``close``.
        """
        await OVERLOAD.room()
        if self._closed is not None:
            raise self._closed
        if self.count >= self._most:
            raise EngineError(
                ErrorKind.QUEUE_FULL, "Too many large requests are waiting to be processed; try again later."
            )
        waiting = _PendingWork(asyncio.get_running_loop())
        waiting.begin(self._threads, work, self._done)
        self.count += 1
        self._works.add(waiting)
        timer = waiting.loop.call_later(patience_s, waiting.expire, patience_s)
        try:
            result: Result = await waiting.outcome
            return result
        finally:
            timer.cancel()
            waiting.leave()
            del waiting  # breaks the reference cycle between its error and this frame

    def close(self, error: EngineError) -> None:
        """Fail all work with ``error`` that runs, waits, or comes before ``reopen``."""
        self._closed = error
        for work in list(self._works):
            work.fail(error)

    def reopen(self) -> None:
        """Accept work again."""
        self._closed = None

    def _done(self, work: _PendingWork, future: Future[Any]) -> None:
        if not work.loop.is_closed():
            work.loop.call_soon_threadsafe(self._leave, work, future)

    def _leave(self, work: _PendingWork, future: Future[Any]) -> None:
        self.count -= 1
        self._works.discard(work)
        work.finish(future)


class _PendingWork:
    """The work of one caller in the thread pool, with a future of its outcome."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.outcome: asyncio.Future[Any] = loop.create_future()
        self._left = threading.Event()
        self._future: Future[Any] | None = None

    def begin(
        self,
        threads: ThreadPoolExecutor,
        work: Callable[[threading.Event], Any],
        done: Callable[[_PendingWork, Future[Any]], None],
    ) -> None:
        """Submit the work to the threads, with the caller's context variables; the thread then calls ``done``."""
        future = threads.submit(contextvars.copy_context().run, work, self._left)
        self._future = future
        future.add_done_callback(functools.partial(done, self))

    def leave(self) -> None:
        """Cancel the work unless it has ended."""
        self._left.set()
        if self._future is not None:
            self._future.cancel()
            self._future = None  # it knows this object: neither would be freed

    def fail(self, error: EngineError) -> None:
        """Raise an error in waiting tasks."""
        if not self.outcome.done():
            self.outcome.set_exception(error)
        self.leave()

    def expire(self, seconds: float) -> None:
        """Fail with TIMEOUT, unless a thread has begun the work."""
        if self._future is not None and self._future.cancel():
            message = f"The request waited {seconds:g} seconds for larger requests to be processed; try again later."
            self.fail(EngineError(ErrorKind.TIMEOUT, message))

    def finish(self, future: Future[Any]) -> None:
        """Set the outcome from the thread's result or error."""
        if self.outcome.done() or future.cancelled():
            return
        error = future.exception()
        if error is None:
            self.outcome.set_result(future.result())
        else:
            self.outcome.set_exception(error)


PROMPTS = LongWork("long-prompt", 2)
"""Rendering and tokenizing."""
LARGE_PROMPTS = LongWork("large-prompt", 1)
"""The same of very long ones, one at a time: each takes some hundreds of bytes of memory for each token."""
TEMPLATES = LongWork("own-template", 1)
"""The same with a template of the request's own, so that other long prompts need not wait for it."""
BODIES = LongWork("large-body", 1)
"""Parsing and checking."""
_ALL = PROMPTS, LARGE_PROMPTS, TEMPLATES, BODIES


def close_all(error: EngineError) -> None:
    """Close all queues of this process, and end their helper processes."""
    for work in _ALL:
        work.close(error)
    end_helpers()


def reopen_all() -> None:
    """Reopen all queues, for another server in this process."""
    for work in _ALL:
        work.reopen()
