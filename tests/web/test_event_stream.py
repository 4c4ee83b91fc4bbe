"""The event stream's ASGI messages: headers come with the first bytes, one write for each item."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from gateway.http.sse import EventStream


async def never() -> dict[str, Any]:
    await asyncio.Event().wait()
    raise AssertionError


async def run(events: AsyncGenerator[bytes, None], receive: Any = never) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    sent: list[dict[str, Any]] = []
    scope: dict[str, Any] = {"type": "http"}

    async def send(message: Any) -> None:
        sent.append(message)

    await EventStream(events, {"x-more": "1"})(scope, receive, send)
    return sent, scope


async def test_one_write_for_each_item() -> None:
    async def events() -> AsyncGenerator[bytes, None]:
        yield b"data: a\n\ndata: b\n\n"
        yield b"data: c\n\n"

    sent, _ = await run(events())
    assert [message["type"] for message in sent] == ["http.response.start", *["http.response.body"] * 3]
    assert [message["body"] for message in sent[1:]] == [b"data: a\n\ndata: b\n\n", b"data: c\n\n", b""]
    assert [message["more_body"] for message in sent[1:]] == [True, True, False]
    headers = dict(sent[0]["headers"])
    assert headers[b"content-type"] == b"text/event-stream; charset=utf-8"
    assert headers[b"cache-control"] == b"no-cache"
    assert headers[b"x-accel-buffering"] == b"no"
    assert headers[b"x-more"] == b"1"
    assert b"content-length" not in headers
