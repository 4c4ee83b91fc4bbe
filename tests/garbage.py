"""What is left for the garbage collector."""

from __future__ import annotations

import asyncio
import gc
import time
from collections import Counter
from collections.abc import Awaitable, Callable


async def check_leaves_nothing(work: Callable[[], Awaitable[None]]) -> None:
    """Fail unless all of the project's objects that some work makes are freed without the garbage collector.

    Args:
        work: done twice, as what the first leaves may be meant to stay.
    """
    await work()
    gc.collect()
    gc.disable()
    try:
        before = _objects()
        await work()
        end = time.monotonic() + 5
        while left := _objects() - before:  # connections end a moment later
            assert time.monotonic() < end, left
            await asyncio.sleep(0.01)
    finally:
        gc.enable()


def _objects() -> Counter[str]:
    # Counted before they are chosen: there are hundreds of thousands, of a few thousand types.
    objects: Counter[str] = Counter()
    for kind, count in Counter(map(type, gc.get_objects())).items():
        if str(kind.__module__).startswith("gateway."):
            objects[kind.__qualname__] += count
    return objects
