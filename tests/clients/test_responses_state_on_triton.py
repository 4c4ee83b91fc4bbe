"""Responses that are kept, by the SDK: two gateways, one of two workers, one store, and a real Triton behind them."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import BadRequestError, OpenAI
from openai.types.responses import Response

from tests.scripted_engine.replay import ScriptedServer, turn
from tests.stack import GatewayProcess, strict_client
from tests.store.redis_server import MISSING, RedisServer

QWEN = Path(__file__).parents[2] / "chat_templates" / "hermes.jinja"
AGENT = "agent"
SAID = "It is warmer in Rome. " * 8
RUNNING = ("queued", "in_progress")


@contextlib.contextmanager
def started(
    triton: ScriptedServer, folder: Path, state: dict[str, str], name: str, workers: int = 2, **more: Any
) -> Iterator[GatewayProcess]:
    settings = {
        "server": {"reload_s": 0, **more},
        "state": state,
        "models": [
            {
                "name": AGENT,
                "triton": {"url": triton.grpc_url},
                "tokenizer": str(triton.model_dir),
                "template": str(QWEN),
                "family": "qwen3",
                "max_seq_len": 8192,
            }
        ],
    }
    with GatewayProcess(folder / f"{name}.log", settings, GATEWAY_WORKERS=str(workers)) as process:
        yield process


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("responses-state")


@pytest.fixture(scope="module", params=["sqlite", pytest.param("redis", marks=pytest.mark.long)])
def state(request: pytest.FixtureRequest, folder: Path) -> Iterator[dict[str, str]]:
    """Settings of a store that the gateways share."""
    if request.param == "sqlite":
        yield {"path": str(folder / "state.sqlite")}
        return
    if MISSING:
        pytest.skip(MISSING)
    with RedisServer(folder) as server:
        yield {"store": "redis", "redis_url": server.url}


@pytest.fixture(scope="module")
def two(scripted_triton: ScriptedServer, folder: Path, state: dict[str, str]) -> Iterator[list[GatewayProcess]]:
    with (
        started(scripted_triton, folder, state, "one") as one,
        started(scripted_triton, folder, state, "other", workers=1) as other,
    ):
        yield [one, other]


@pytest.fixture
def sdks(two: list[GatewayProcess]) -> Iterator[list[OpenAI]]:
    """Clients each of whose requests comes by a connection of its own, so that any worker may get it."""
    alone = {"Connection": "close"}
    with (
        strict_client(two[0].url, default_headers=alone) as one,
        strict_client(two[1].url, default_headers=alone) as other,
    ):
        yield [one, other]


def polled(sdk: OpenAI, response: Response, until: Callable[[Response], bool] | None = None) -> Response:
    """The response once it is as wanted: without ``until`` once it has ended."""
    deadline = time.monotonic() + 60
    while response.status in RUNNING if until is None else not until(response):
        assert time.monotonic() < deadline, response
        response = sdk.responses.retrieve(response.id)
    return response


def begun(response: Response) -> bool:
    return response.status != "queued"


def test_a_stream_is_picked_up_elsewhere(sdks: list[OpenAI], scripted_triton: ScriptedServer) -> None:
    scripted_triton.play(turn(text=f"<think>\nHm.\n</think>\n\n{SAID}<|im_end|>"))
    one, other = sdks
    seen = []
    with one.responses.create(model=AGENT, input="Hi", background=True, stream=True) as stream:
        for event in stream:
            seen.append(event)
            if event.type == "response.output_text.delta":
                break
    first = seen[0]
    assert first.type == "response.created"
    for sdk in sdks:
        with sdk.responses.retrieve(first.response.id, stream=True, starting_after=seen[-1].sequence_number) as stream:
            rest = list(stream)
        whole = [*seen, *rest]
        assert [event.sequence_number for event in whole] == list(range(len(whole)))
        assert "".join(event.delta for event in whole if event.type == "response.output_text.delta") == SAID
        last = whole[-1]
        assert last.type == "response.completed"
        assert last.response == sdk.responses.retrieve(first.response.id)
    with other.responses.stream(response_id=first.response.id) as helper:
        assert helper.get_final_response().output_text == SAID


def test_cancelling_elsewhere(sdks: list[OpenAI], scripted_triton: ScriptedServer) -> None:
    scripted_triton.play(turn(text="On and on", hold=True))
    one, other = sdks
    for sdk in (one, other, one, other):  # whichever worker it meets
        response = one.responses.create(model=AGENT, input="Hi", background=True)
        polled(other, response, begun)
        cancelled = sdk.responses.cancel(response.id)
        assert cancelled.status == "cancelled"
        assert sdk.responses.cancel(response.id).status == "cancelled"
        found = polled(sdk, cancelled, lambda shown: bool(shown.output))  # written by the worker that has run it
        assert found.status == "cancelled"
        assert "On and on".startswith(found.output_text)
    scripted_triton.play(turn(text="So.<|im_end|>"))
    ended = polled(one, one.responses.create(model=AGENT, input="Hi", background=True))
    with pytest.raises(BadRequestError, match="already completed"):
        other.responses.cancel(ended.id)


@pytest.mark.long
def test_a_worker_that_is_killed_has_failed(
    two: list[GatewayProcess], sdks: list[OpenAI], scripted_triton: ScriptedServer
) -> None:
    scripted_triton.play(turn(text="On and on", hold=True))
    one, other = sdks
    with one.responses.create(model=AGENT, input="Hi", background=True, stream=True) as stream:
        for event in stream:
            if event.type == "response.in_progress":
                response_id = event.response.id
                break
    for worker in two[0].children():
        os.kill(worker, signal.SIGKILL)
    killed = time.monotonic()
    with other.responses.retrieve(response_id, stream=True) as stream:
        last = list(stream)[-1]
    assert time.monotonic() - killed < 60  # the lease lasts 10 s
    assert last.type == "response.failed"
    assert last.response == other.responses.retrieve(response_id)
    assert last.response.status == "failed"
    two[0].wait("/health/ready", 200)
    assert one.responses.retrieve(response_id) == last.response
