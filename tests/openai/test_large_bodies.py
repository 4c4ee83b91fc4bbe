"""Large bodies: bounds of texts, calls and unknown fields, and of what is received at a time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.api.openai import request_body
from tests.app.harness import gateway
from tests.app.scripted import MODEL

PADDING = "x" * 300_000


async def test_a_text_that_no_context_holds_is_refused_by_name(folder: Path) -> None:
    async with gateway(folder) as running:
        answer = await running.client.post("/tokenize", json={"prompt": "a" * (2**23 + 1)})
        error = answer.json()["error"]
        assert (answer.status_code, error["param"], error["code"]) == (400, "prompt", "string_above_max_length")


async def test_large_bodies_that_come_together_have_a_bound_in_all(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = request_body.BodyBudget(limit=500_000)
    monkeypatch.setattr(request_body, "_bodies", held)
    whole = json.dumps({"model": MODEL, "prompt": PADDING}).encode()
    first_half_came, go_on = asyncio.Event(), asyncio.Event()

    async def slow_body() -> AsyncIterator[bytes]:
        yield whole[:-1]
        first_half_came.set()
        await go_on.wait()
        yield whole[-1:]

    async with gateway(folder, served=True) as running:
        headers = {"Content-Type": "application/json"}
        slow = asyncio.create_task(running.client.post("/tokenize", content=slow_body(), headers=headers))
        await first_half_came.wait()
        while held.held < len(whole) - 1:  # noqa: ASYNC110 - until the server has read what was sent
            await asyncio.sleep(0)
        rejected = await running.client.post("/tokenize", content=whole, headers=headers)
        assert (rejected.status_code, rejected.json()["error"]["code"]) == (503, "service_unavailable")
        assert rejected.headers["Retry-After"] == "1"
        small = await running.client.post("/tokenize", json={"model": MODEL, "prompt": "Hi"})
        assert small.status_code == 200
        go_on.set()
        assert (await slow).status_code == 400  # it was read: the context is too short for it
        assert held.held == 0
        again = await running.client.post("/tokenize", content=whole, headers=headers)
        assert again.status_code == 400
