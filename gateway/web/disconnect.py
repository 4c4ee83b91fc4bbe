"""Work that ends when its client leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

Result = TypeVar("Result")


class ClientDisconnectedError(Exception):
    """The client closed its connection before the work was done."""


async def while_connected(receive: Receive, work: Coroutine[Any, Any, Result]) -> Result:
    """Run ``work`` to its end, or until the client disconnects; then it is cancelled and has cleaned up on return.

    Args:
        receive: the ASGI channel, with the request body already read from it.
        work: what to run.

    Raises:
        ClientDisconnectedError: when the client left first.
    """
    task = asyncio.ensure_future(work)
    watcher = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait((task, watcher), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnectedError
        return task.result()
    finally:
        for pending in (watcher, task):
            pending.cancel()
        await asyncio.gather(watcher, task, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
