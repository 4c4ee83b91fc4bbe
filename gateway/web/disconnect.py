"""Work that ends when its client leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from starlette.types import Receive, Scope

from gateway.web.client_connection import connection_of

Result = TypeVar("Result")


class ClientDisconnectedError(Exception):
    """The client closed its connection before the work was done."""


async def while_connected(scope: Scope, receive: Receive, work: Coroutine[Any, Any, Result]) -> Result:
    """Run ``work`` to its end, or until the client disconnects; then it is cancelled and has cleaned up on return.

    Args:
        scope: of the request.
        receive: its ASGI channel, with the request body already read from it.
        work: what to run; it runs in the task that calls, and is not begun where the client has left by then.

    Raises:
        ClientDisconnectedError: when the client left first.
    """
    connection = connection_of(scope)
    if connection is not None and connection.lost:
        work.close()
        raise ClientDisconnectedError
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - a coroutine of asyncio runs in one
    left = ended = False

    def leave() -> None:
        nonlocal left
        if not ended:
            left = True
            task.cancel()

    watcher = None if connection is not None else asyncio.create_task(_watch(receive, leave))
    if connection is not None:
        connection.on_lost.append(leave)
    try:
        return await work
    except asyncio.CancelledError:
        if not left:
            raise
        if hasattr(task, "uncancel") and task.uncancel():  # from Python 3.11 on: someone else cancels it, too
            raise
        raise ClientDisconnectedError from None
    finally:
        ended = True
        if watcher is not None:
            watcher.cancel()
        elif connection is not None:
            connection.on_lost.remove(leave)


async def _watch(receive: Receive, leave: Callable[[], None]) -> None:
    """Call ``leave`` when the channel says that the client is gone: under another server than ours."""
    while (await receive())["type"] != "http.disconnect":
        pass
    leave()
