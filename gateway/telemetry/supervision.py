"""Tasks that go on for as long as what they look after, whatever exception they meet."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

_log = logging.getLogger(__name__)
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 30.0
_STABLE_S = 60.0


async def keep_running(what: str, work: Callable[[], Awaitable[None]]) -> None:
    """Run ``work`` until it returns or is cancelled; after any other end it is logged and begins again.

    Args:
        what: it does, for the log.
        work: begins anew each time that it is called.
    """
    loop, pause = asyncio.get_running_loop(), _FIRST_PAUSE_S
    while True:
        begun = loop.time()
        try:
            return await work()
        except Exception as defect:  # noqa: BLE001 - a defect, whatever it is: what it looks after must not go without
            if loop.time() - begun > _STABLE_S:
                pause = _FIRST_PAUSE_S
            _log.error(
                "%s failed and restarts in %g s", what, pause, exc_info=defect, extra={"event": "task_restarted"}
            )
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_S)
