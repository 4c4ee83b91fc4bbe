"""Work that would hold up everybody's tokens on the event loop: in few threads, in the order of arrival."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from gateway.generation import EngineError, ErrorKind

Result = TypeVar("Result")
_MOST_WAITING = 256


class LeftError(Exception):
    """The client left, and nobody wants the result any more."""


class LongWork:
    """A bounded queue before a few threads.

    Not anyio's threads: there are 40 of them, and one that is cancelled leaves its place to the next while it runs on.

    Attributes:
        count: how many works run or wait.
    """

    def __init__(self, name: str, threads: int, most_waiting: int = _MOST_WAITING) -> None:
        """Prepare; threads start when there is work.

        Args:
            name: of the threads.
            threads: how many work at once.
            most_waiting: how many may wait besides.
        """
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._most = threads + most_waiting
        self.count = 0

    async def run(self, work: Callable[[threading.Event], Result]) -> Result:
        """Run ``work`` in its turn; one that is cancelled before is never begun.

        Args:
            work: is given an event, which is set when nobody waits for its result any more.

        Raises:
            EngineError: QUEUE_FULL when too many wait already.
        """
        if self.count >= self._most:
            raise EngineError(ErrorKind.QUEUE_FULL, "Too many long requests are waiting to be read; try again later.")
        left = threading.Event()
        future = self._threads.submit(work, left)
        self.count += 1
        loop = asyncio.get_running_loop()
        future.add_done_callback(lambda _: self._done(loop))
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            left.set()
            raise

    def _done(self, loop: asyncio.AbstractEventLoop) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._leave)

    def _leave(self) -> None:
        self.count -= 1


PROMPTS = LongWork("long-prompt", 2)
"""Rendering and tokenizing. Two at once: each takes some hundreds of bytes of memory for each token."""
TEMPLATES = LongWork("own-template", 1)
"""The same with a template of the request's own, in whose turn nobody else's long prompt has to wait."""
BODIES = LongWork("large-body", 1)
"""Parsing and checking."""
