"""What log lines say of the request that is their cause."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.generation import EngineError, ErrorKind
from gateway.telemetry.logs import LineFormatter
from tests.app.harness import USER, gateway
from tests.app.scripted import MODEL

Lines = Callable[[str], list[dict[str, Any]]]


@pytest.fixture
def lines() -> Iterator[Lines]:
    """The lines of this process with some words in their message, as the gateway's handler writes them."""
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(LineFormatter("%(levelname)s %(name)s %(message)s"))
    logging.getLogger().addHandler(handler)
    try:
        yield lambda words: [
            line for line in map(json.loads, written.getvalue().splitlines()) if words in line["message"]
        ]
    finally:
        logging.getLogger().removeHandler(handler)


async def test_each_engine_failure_has_the_id_of_its_own_request(folder: Path, lines: Lines) -> None:
    met = asyncio.Event()
    detail = "the backend's own words"
    async with gateway(
        folder, lambda _: [met, EngineError(ErrorKind.QUEUE_FULL, "Full.", detail)], served=True
    ) as running:
        asked = [
            asyncio.create_task(
                running.client.post(
                    "/v1/chat/completions",
                    json={"model": MODEL, "messages": USER, "stream": stream, "n": choices},
                    headers={"x-request-id": f"{choices}-{stream}"},
                )
            )
            for stream in (False, True)
            for choices in (1, 2)
        ]
        while running.engine.running < 6:  # all of them at once  # noqa: ASYNC110
            await asyncio.sleep(0)
        met.set()
        answers = await asyncio.gather(*asked)
    failures = lines("engine failure: Full.")
    assert {line["event"] for line in failures} == {"engine_failure"}
    assert {line["request_id"] for line in failures} == {answer.headers["x-request-id"] for answer in answers}
    assert len({line["request_id"] for line in failures}) == 4


async def test_an_answer_that_cannot_be_read_has_its_request_s_id(folder: Path, lines: Lines) -> None:
    def script(_: object) -> Any:
        raise ZeroDivisionError

    async with gateway(folder, script, served=True) as running:
        answer = await running.chat()
    (line,) = lines("could not be read")
    assert (line["event"], line["request_id"]) == ("answer_unreadable", answer.headers["x-request-id"])
    assert line["request_id"] in answer.json()["error"]["message"]
    assert "ZeroDivisionError" in line["exc_info"]


async def test_the_traceback_of_a_defect_has_the_id_that_the_client_is_told(
    folder: Path, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("gateway.api.openai.models.routes.model_object", broken)
    async with gateway(folder, served=True) as running:
        answer = await running.client.get("/v1/models")
    assert answer.status_code == 500
    (line,) = lines("Exception in ASGI application")
    assert line["request_id"] == answer.headers["x-request-id"]
    assert line["request_id"] in answer.json()["error"]["message"]
    assert "event" not in line  # uvicorn's, not ours
