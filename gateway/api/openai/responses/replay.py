"""Streams of background responses from any event on, whichever process generates them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing

from gateway.api.openai.errors import OpenAIError
from gateway.api.openai.responses.answer import last_event
from gateway.api.openai.responses.background import BackgroundRuns
from gateway.api.openai.responses.stored import ResponseStore
from gateway.generation.relay.interface import StreamOutput
from gateway.http.access_log import RequestRecord
from gateway.http.sse import COMMENT

_POLL_S = 0.2
_LONGEST_POLL_S = 1.0  # for a response without recent events, which many clients may await
_PAGE = 256
_LATE_S = 3.0


async def follow(
    runs: BackgroundRuns,
    response_store: ResponseStore,
    response_id: str,
    after: int,
    record: RequestRecord,
    keepalive_s: float,
    output: StreamOutput,
) -> AsyncGenerator[bytes, None]:
    """Yield the stored events of a background response, and new ones as they are generated.

    If the response is deleted meanwhile or its store fails, the stream ends without a last event.

    Args:
        runs: of this process.
        response_store: where the response is stored.
        response_id: of the response.
        after: number of the event after which to begin; -1: with the first one.
        record: of the request.
        keepalive_s: silence after which a comment is sent.
        output: of the client; events generated in this process are written to it immediately.

    Raises:
        OpenAIError: 503 where the store cannot be used, before the first bytes.
    """
    begun = False
    try:
        async with aclosing(_followed(runs, response_store, response_id, after + 1, keepalive_s, output)) as followed:
            async for data in followed:
                begun = True
                yield data
    except OpenAIError as error:
        if not begun:
            raise
        record.error = error.code


async def _followed(
    runs: BackgroundRuns,
    response_store: ResponseStore,
    response_id: str,
    place: int,
    keepalive_s: float,
    output: StreamOutput,
) -> AsyncGenerator[bytes, None]:
    quiet_since = time.monotonic()
    heard = quiet_since
    while True:
        pause = min(_LONGEST_POLL_S, max(_POLL_S, (time.monotonic() - heard) / 5))
        run = runs.find(response_store, response_id)
        if run is not None and run.log is not None and not run.ended.is_set() and run.log.since(place) == []:
            written = await run.log.read_along(output.write, keepalive_s)
            place += written
            if written:
                heard = quiet_since = time.monotonic()
        events, running = await _next(runs, response_store, response_id, place, pause)
        if events:
            place += len(events)
            heard = quiet_since = time.monotonic()
            yield b"".join(events)
        elif not running:
            yield await _last(response_store, response_id, place) or COMMENT
            return
        elif time.monotonic() - quiet_since >= keepalive_s:
            quiet_since = time.monotonic()
            yield COMMENT


async def _next(
    runs: BackgroundRuns, response_store: ResponseStore, response_id: str, place: int, pause: float
) -> tuple[list[bytes], bool]:
    """The events at a place, after a while none; and whether there may be more."""
    run = runs.find(response_store, response_id)
    if run is not None and run.log is not None and not run.ended.is_set():
        events = run.log.since(place)
        if events is not None:
            return events, True
    leased = await response_store.leased(response_id)  # read before the events: none is missed when the lease has ended
    events = await response_store.events(response_id, place, _PAGE)
    if events or not leased:
        return events, leased
    await asyncio.sleep(pause)
    return [], True


async def _last(response_store: ResponseStore, response_id: str, place: int) -> bytes:
    """The event that ends the stream; empty where the response is gone, or the client has that event."""
    latest = time.monotonic() + _LATE_S
    while (found := await response_store.find(response_id)) is not None:
        if place == 0 or await response_store.events(response_id, place - 1, 1):
            return last_event(found[0].status, found[0].response, place)
        # After a cancel elsewhere, the generating process has still to store the events that the client has read.
        if found[0].status != "cancelled" or time.monotonic() >= latest:
            break
        await asyncio.sleep(_POLL_S)
    return b""
