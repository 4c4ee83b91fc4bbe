"""Background responses: polled, followed, resumed and cancelled, by the gateway that generates them and by another."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sqlite3
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gateway.api.openai.responses import background, stored
from gateway.generation import EngineChunk, EngineError, ErrorKind, GenerationRequest
from tests.app.harness import Gateway, gateway
from tests.app.scripted import MODEL, ByteIds, Step
from tests.openai.responses_harness import checked, events_of, post
from tests.openai.test_responses_state import error_of, shown

TEXT = "Hello"


@dataclass
class Engine:
    """What the engine says, in two halves: the second one when it may.

    Attributes:
        goes_on: lets it say the second half.
        error: ends the second half.
    """

    folder: Path
    goes_on: asyncio.Event = field(default_factory=asyncio.Event)
    error: EngineError | None = None

    def script(self, _: GenerationRequest) -> list[Step]:
        chunks = [EngineChunk(ids=[index]) for index in ByteIds(self.folder).of(TEXT)]
        end: Step = self.error or EngineChunk(final=True)
        return [*chunks[:2], self.goes_on, *chunks[2:], end]


@pytest.fixture
def engine(folder: Path) -> Engine:
    return Engine(folder)


@pytest.fixture
async def here(folder: Path, tmp_path: Path, engine: Engine) -> AsyncIterator[Gateway]:
    """The gateway that generates, behind a real server."""
    state = {"path": tmp_path / "state"}
    async with gateway(folder, engine.script, served=True, state=state) as running:
        yield running


@pytest.fixture
async def there(folder: Path, tmp_path: Path, here: Gateway) -> AsyncIterator[Gateway]:
    """Another gateway on the same store."""
    async with gateway(folder, served=True, state={"path": tmp_path / "state"}) as running:
        yield running


@pytest.fixture(params=["here", "there"])
def either(request: pytest.FixtureRequest, here: Gateway, there: Gateway) -> Gateway:
    return here if request.param == "here" else there


async def begun(running: Gateway, **body: Any) -> str:
    answer = await post(running, background=True, **body)
    assert answer.status_code == 200, answer.text
    response = checked(answer.json())
    assert (response.status, response.background, response.output) == ("queued", True, [])
    return response.id


async def polled(running: Gateway, response_id: str, *until: str) -> dict[str, Any]:
    """The response when it has one of these states."""
    while True:
        response: dict[str, Any] = (await shown(running, response_id)).json()
        if response["status"] in until:
            return response
        assert response["status"] in ("queued", "in_progress"), response


async def cancelled(running: Gateway, response_id: str) -> dict[str, Any]:
    answer = await running.client.post(f"/v1/responses/{response_id}/cancel")
    assert answer.status_code == 200, answer.text
    response: dict[str, Any] = answer.json()
    assert response["status"] == "cancelled"
    return response


async def opened(running: Gateway, most: int, **body: Any) -> tuple[str, list[dict[str, Any]]]:
    """The id of a background stream and its first events, after which the client has left."""
    text = ""
    body = {"model": MODEL, "input": "Hi", "background": True, "stream": True, **body}
    async with running.client.stream("POST", "/v1/responses", json=body) as answer:
        async for line in answer.aiter_lines():
            text += f"{line}\n"
            if text.count("\n\n") == most:
                break
    events = events_of(text)
    return events[0]["response"]["id"], events


async def resumed(running: Gateway, response_id: str, after: int | None = None) -> list[dict[str, Any]]:
    """The events of a stream after one of them."""
    query: dict[str, Any] = {"stream": "true"} | ({} if after is None else {"starting_after": after})
    answer = await shown(running, response_id, **query)
    assert answer.status_code == 200, answer.text
    number = -1 if after is None else after
    events = [json.loads(line.removeprefix("data: ")) for line in answer.text.splitlines() if line.startswith("data: ")]
    assert [event["sequence_number"] for event in events] == list(range(number + 1, number + 1 + len(events)))
    return events


async def test_polling(here: Gateway, either: Gateway, engine: Engine) -> None:
    response_id = await begun(here)
    await here.engine.asked.wait()
    assert (await polled(either, response_id, "in_progress"))["output"] == []
    rejected = await post(either, previous_response_id=response_id)
    assert error_of(rejected) == (400, "previous_response_id", "previous_response_not_ended")
    engine.goes_on.set()
    response = checked(await polled(either, response_id, "completed"))
    assert response.output_text == TEXT
    assert response.usage is not None
    assert response.usage.output_tokens == 5
    assert (await post(either, previous_response_id=response_id)).status_code == 200
    assert error_of(await shown(either, response_id, stream="true")) == (400, "stream", "invalid_value")


async def test_a_stream_is_the_same_whenever_it_is_read(here: Gateway, there: Gateway, engine: Engine) -> None:
    response_id, first = await opened(here, 6)
    kinds = ["created", "queued", "in_progress", "output_item.added", "content_part.added", "output_text.delta"]
    assert [event["type"] for event in first] == [f"response.{kind}" for kind in kinds]
    assert [event["response"]["status"] for event in first[:3]] == ["queued", "queued", "in_progress"]
    reading = [asyncio.create_task(resumed(running, response_id, 3)) for running in (here, there, here)]
    await asyncio.sleep(0)
    engine.goes_on.set()
    streams = [await each for each in reading]
    whole = await resumed(there, response_id)
    assert whole[:6] == first
    assert streams == [whole[4:]] * 3
    assert whole[-1]["type"] == "response.completed"
    assert whole[-1]["response"] == (await shown(here, response_id)).json()
    assert "".join(event["delta"] for event in whole if event["type"].endswith("delta")) == TEXT
    last = whole[-1]["sequence_number"]
    for after in range(-1, last):
        assert await resumed(here, response_id, after if after >= 0 else None) == whole[after + 1 :]
    assert await resumed(there, response_id, last) == []
    assert await resumed(there, response_id, last + 7) == []


async def test_cancelling(here: Gateway, either: Gateway, engine: Engine) -> None:
    response_id = await begun(here)
    await polled(here, response_id, "in_progress")
    await cancelled(either, response_id)
    await here.engine.left.wait()
    while not (response := (await shown(either, response_id)).json())["output"]:
        assert response["status"] == "cancelled"
    assert checked(response).output_text == TEXT[:2]
    assert await cancelled(either, response_id) == response  # again: nothing changes
    engine.goes_on.set()
    assert (await post(either, previous_response_id=response_id, store=False)).status_code == 200


async def test_one_that_is_cancelled_puts_nothing_into_its_conversation(
    here: Gateway, there: Gateway, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "_FLUSH_S", 1e9)  # it ends before the cancel is seen
    name = (await here.client.post("/v1/conversations", json={})).json()["id"]
    response_id = await begun(here, conversation=name)
    await polled(there, response_id, "in_progress")
    await cancelled(there, response_id)
    engine.goes_on.set()
    while not (found := (await shown(there, response_id)).json())["output"]:
        assert found["status"] == "cancelled"
    assert (await there.client.get(f"/v1/conversations/{name}/items")).json()["data"] == []


async def test_a_cancelled_stream_ends(here: Gateway, there: Gateway) -> None:
    response_id, _ = await opened(here, 6)
    reading = [asyncio.create_task(resumed(running, response_id, 5)) for running in (here, there)]
    await cancelled(there, response_id)
    for each in reading:
        last = (await each)[-1]
        assert (last["type"], last["response"]["status"]) == ("response.incomplete", "cancelled")


async def test_what_has_ended_is_not_cancelled(here: Gateway, either: Gateway, engine: Engine) -> None:
    engine.goes_on.set()
    response_id = await begun(here)
    await polled(here, response_id, "completed")
    rejected = await either.client.post(f"/v1/responses/{response_id}/cancel")
    assert error_of(rejected) == (400, None, None)
    assert "completed" in rejected.json()["error"]["message"]


async def test_deleting_ends_the_run(here: Gateway, either: Gateway) -> None:
    response_id, _ = await opened(here, 6)
    assert (await either.client.delete(f"/v1/responses/{response_id}")).status_code == 200
    await here.engine.left.wait()
    assert here.engine.closed_early
    assert (await shown(either, response_id)).status_code == 404


async def test_a_failure_of_the_engine(here: Gateway, there: Gateway, engine: Engine) -> None:
    engine.error = EngineError(ErrorKind.INTERNAL, "The engine failed.", "secret")
    engine.goes_on.set()
    response_id, _ = await opened(here, 3)
    response = checked(await polled(there, response_id, "failed"))
    assert response.error is not None
    assert (response.error.code, response.error.message) == ("server_error", "The engine failed.")
    assert (await resumed(there, response_id))[-1]["response"] == response.to_dict()


async def test_an_engine_that_fails_before_it_answers(folder: Path, tmp_path: Path) -> None:
    def script(_: GenerationRequest) -> list[Step]:
        return [EngineError(ErrorKind.QUEUE_FULL, "The engine's queue is full.")]

    async with gateway(folder, script, state={"path": tmp_path / "state"}) as running:
        response_id = await begun(running, stream=False)
        response = checked(await polled(running, response_id, "failed"))
        assert response.error is not None
        assert response.error.code == "rate_limit_exceeded"
        answer = await post(running, background=True, stream=True)
        assert [event["type"] for event in events_of(answer.text)] == [
            "response.created", "response.queued", "response.failed",
        ]  # fmt: skip


async def test_bad_requests_are_refused_at_once(here: Gateway) -> None:
    assert error_of(await post(here, background=True, store=False)) == (400, "background", "invalid_value")
    rejected = await post(here, background=True, input="x" * 5000)
    assert error_of(rejected)[2] == "context_length_exceeded"
    assert (await post(here, background=True, model="nobody")).status_code == 404


async def test_there_is_a_bound(folder: Path, tmp_path: Path, engine: Engine) -> None:
    limits = {"max_background_responses": 1}
    async with gateway(folder, engine.script, limits=limits, state={"path": tmp_path / "state"}) as running:
        response_id = await begun(running)
        rejected = await post(running, background=True)
        assert error_of(rejected) == (429, None, "rate_limit_exceeded")
        assert rejected.headers["retry-after"] == "1"
        engine.goes_on.set()
        await polled(running, response_id, "completed")
        assert (await post(running)).status_code == 200


async def test_a_gateway_that_shuts_down_says_so(
    folder: Path, tmp_path: Path, engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "gateway.access")
    state = {"path": tmp_path / "state"}
    async with gateway(folder, state=state) as there:
        async with gateway(folder, engine.script, state=state) as running:
            response_id = await begun(running, metadata={"a": "b"})
            await polled(running, response_id, "in_progress")
        response = checked((await shown(there, response_id)).json())
        assert response.error is not None
        assert (response.status, response.error.message) == ("failed", "The gateway is shutting down.")
        assert response.output_text == TEXT[:2]
        logged = [vars(record) for record in caplog.records if record.getMessage() == "background response"]
        assert [(line["response_id"], line["status"], line["model"]) for line in logged] == [
            (response_id, "failed", MODEL)
        ]


@pytest.mark.parametrize("stream", [False, True])
async def test_an_end_waits_for_a_store_that_is_away(
    tmp_path: Path, engine: Engine, stream: bool,
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("gateway.serving.store.sqlite_store.LOCK_S", 0.05)
    async with gateway(engine.folder, engine.script, served=True, state={"path": tmp_path / "other"}) as running:
        response_id = (await opened(running, 6))[0] if stream else await begun(running)
        await polled(running, response_id, "in_progress")
        with contextlib.closing(sqlite3.connect(tmp_path / "other", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            engine.goes_on.set()
            while running.engine.running or "the store cannot be used" not in caplog.text:
                await running.client.get("/health/live")
            other.execute("ROLLBACK")
        response = checked(await polled(running, response_id, "completed"))
        assert response.output_text == TEXT
        if stream:
            assert (await resumed(running, response_id))[-1]["response"] == response.to_dict()


async def test_a_gateway_that_is_gone(
    folder: Path, tmp_path: Path, engine: Engine, there: Gateway, here: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "LEASE_S", 0.3)
    monkeypatch.setattr(background, "_FLUSH_S", 1e9)  # as if it hung
    response_id, _ = await opened(here, 6)
    response = checked(await polled(there, response_id, "failed"))
    assert response.error is not None
    assert "stopped before" in response.error.message
    events = await resumed(there, response_id)
    assert (events[-1]["type"], events[-1]["response"]) == ("response.failed", response.to_dict())
    engine.goes_on.set()  # what it says later is too late
    await here.engine.left.wait()
    await asyncio.sleep(0)
    assert (await shown(here, response_id)).json() == response.to_dict()
