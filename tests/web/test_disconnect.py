"""Work that ends with its client: nothing is left running, whoever ends first."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gateway.http.client_connection import ClientDisconnectedError, while_connected


def channel(*messages: dict[str, Any]) -> Callable[[], Awaitable[dict[str, Any]]]:
    """An ASGI receive channel that gives ``messages`` and then waits."""
    pending = list(messages)

    async def receive() -> dict[str, Any]:
        if not pending:
            await asyncio.Event().wait()
        return pending.pop(0)

    return receive


async def test_work_has_cleaned_up_when_the_client_left() -> None:
    cleaned = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)  # a clean-up that awaits is not cut off
            cleaned.append(True)

    with pytest.raises(ClientDisconnectedError):
        await while_connected({}, channel({"type": "http.request"}, {"type": "http.disconnect"}), work())
    assert cleaned == [True]


async def test_a_cancelled_server_takes_its_work_along() -> None:
    started, cleaned = asyncio.Event(), []

    async def work() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append(True)

    task = asyncio.create_task(while_connected({}, channel(), work()))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cleaned == [True]
    assert len(asyncio.all_tasks()) == 1
