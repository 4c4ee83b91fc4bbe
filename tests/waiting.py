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
