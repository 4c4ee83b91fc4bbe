"""Waiting for what another thread or connection does, of which no event tells."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


async def until(happened: Callable[[], bool], seconds: float = 20) -> None:
    """Let others run until something has happened."""
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end
        await asyncio.sleep(0)


def wait_until(happened: Callable[[], object], seconds: float = 30) -> None:
    """Wait until something has happened, such as in another process."""
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.005)


async def until_told(happened: Callable[[], bool]) -> None:
    """Let others run until something has happened; it is asked in a thread, so that it may wait for a server."""
    await asyncio.to_thread(wait_until, happened)
