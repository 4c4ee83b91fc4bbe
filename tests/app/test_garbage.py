"""Requests are freed when they end: the garbage collector, which stops everything, has no work with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.app.harness import USER, gateway
from tests.app.scripted import MODEL
from tests.garbage import check_leaves_nothing


@pytest.mark.parametrize(
    ("changes", "status"),
    [({}, 200), ({"stream": True}, 200), ({"stream": True, "n": 2}, 200), ({"temperature": 9}, 400)],
)
async def test_a_request_leaves_nothing(folder: Path, changes: dict[str, Any], status: int) -> None:
    body = {"model": MODEL, "messages": USER, "max_tokens": 3, **changes}
    async with gateway(folder, served=True) as running:

        async def ask() -> None:
            answer = await running.client.post("/v1/chat/completions", json=body, headers={"connection": "close"})
            assert answer.status_code == status
            running.engine.requests.clear()

        await check_leaves_nothing(ask)
