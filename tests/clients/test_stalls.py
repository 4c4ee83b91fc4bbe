"""An engine that falls silent while Triton says that it is ready, end to end on the real Triton."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from tests.clients.conftest import PATHS
from tests.scripted_engine.replay import ScriptedServer, turn
from tests.stack import GatewayProcess

MODEL = "scripted"
STALL_S = 0.5
TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}"
DEAD = turn(text="", hold=True)  # whatever it is asked, a probe's token included
BEGUN = turn("go on", text="It begins and", hold=True)
WELL = turn("question", text="well")
BROKEN = turn(fails="the engine is broken")


@pytest.fixture(scope="module", params=PATHS)
def gateway(
    request: pytest.FixtureRequest, scripted_triton: ScriptedServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    folder = tmp_path_factory.mktemp("stalls")
    (folder / "template.jinja").write_text(TEMPLATE, encoding="utf-8")
    model = {
        "name": MODEL,
        "triton": {"url": scripted_triton.grpc_url, "stall_s": STALL_S},
        "path": request.param,
        "tokenizer": str(scripted_triton.model_dir),
        "template": "template.jinja",
        "max_seq_len": 8192,
    }
    scripted_triton.play()
    with GatewayProcess(folder / "log", {"models": [model]}) as process:
        yield process


def ask(gateway: GatewayProcess, text: str = "question") -> httpx.Response:
    return gateway.post({"model": MODEL, "messages": [{"role": "user", "content": text}]})


@contextmanager
def begun(gateway: GatewayProcess) -> Iterator[None]:
    """A stream that has begun, and stays open."""
    body: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "go on"}], "stream": True}
    with httpx.stream("POST", f"{gateway.url}/v1/chat/completions", json=body, timeout=30) as answer:
        lines, said = answer.iter_lines(), ""
        while said != "It begins and":
            line = next(lines)
            if line.startswith("data: "):
                said += json.loads(line[6:])["choices"][0]["delta"].get("content") or ""
        yield


def logged(gateway: GatewayProcess, words: str) -> int:
    return sum(words in line for line in gateway.log_lines())


def described(gateway: GatewayProcess) -> dict[str, Any]:
    return dict(httpx.get(f"{gateway.url}/v1/models/{MODEL}").json()["gateway"])


def test_a_dead_engine_takes_no_requests_until_it_goes_on(
    gateway: GatewayProcess, scripted_triton: ScriptedServer
) -> None:
    scripted_triton.play(BEGUN)
    with begun(gateway):
        scripted_triton.play(DEAD)
        told = gateway.wait("/health/ready", 503).json()["models"][MODEL]
        assert told["state"] == "stalled"
        assert "one-token test" in told["reason"]
        assert gateway.wait("/health/live?engine=1", 503).json() == {"status": "engine dead"}
        assert gateway.wait("/health/live", 200)
        rejected = ask(gateway)
        assert (rejected.status_code, rejected.json()["error"]["code"]) == (503, "service_unavailable")
        assert int(rejected.headers["retry-after"]) >= 1
        assert gateway.metric("gateway_model_ready") == 0
        assert gateway.metric("gateway_model_state", 'state="stalled"') == 1
        assert described(gateway)["ready"] is False
        scripted_triton.play(WELL)
        gateway.wait("/health/ready", 200)
        assert ask(gateway).json()["choices"][0]["message"]["content"] == "well"
        assert gateway.metric("gateway_model_ready") == 1
        assert gateway.metric("gateway_model_state", 'state="ready"') == 1
        assert gateway.wait("/health/live?engine=1", 200)
        assert described(gateway)["ready"] is True
    assert [logged(gateway, words) for words in ("may have stalled", "engine not ready", "responds again")] == [1, 1, 1]


def test_a_request_that_is_stuck_by_itself_is_left_alone(
    gateway: GatewayProcess, scripted_triton: ScriptedServer
) -> None:
    scripted_triton.play(BEGUN, WELL)
    before = logged(gateway, "responds again")
    deadline = time.monotonic() + 30
    with begun(gateway):
        while logged(gateway, "responds again") == before and time.monotonic() < deadline:
            assert httpx.get(f"{gateway.url}/health/live").status_code == 200
        assert logged(gateway, "responds again") == before + 1
        assert httpx.get(f"{gateway.url}/health/ready").status_code == 200  # a doubt that was cleared up
        assert ask(gateway).json()["choices"][0]["message"]["content"] == "well"
    assert gateway.metric("gateway_engine_failures_total") == 0


def test_an_engine_that_answers_one_of_three_stays_ready_and_is_told(
    gateway: GatewayProcess, scripted_triton: ScriptedServer
) -> None:
    scripted_triton.play(WELL)
    for _ in range(8):
        assert [ask(gateway, text).status_code for text in ("other", "other", "question")] == [500, 500, 200]
        assert gateway.wait("/health/ready", 200)
    told = gateway.wait("/health/ready", 200).json()["models"][MODEL]
    assert (told["ready"], told["state"]) == (True, "failing")
    assert gateway.metric("gateway_model_failing_share") > 0.3
    assert gateway.metric("gateway_model_ready") == 1
    assert gateway.wait("/health/live?engine=1", 200)


@pytest.mark.parametrize("gateway", ["tokens", pytest.param("ensemble", marks=pytest.mark.long)], indirect=True)
def test_an_engine_that_fails_every_request_takes_none_until_it_is_well(
    gateway: GatewayProcess, scripted_triton: ScriptedServer
) -> None:
    scripted_triton.play(BROKEN)
    assert ask(gateway).status_code == 500
    failed = time.monotonic()
    told = gateway.wait("/health/ready", 503, 20).json()["models"][MODEL]
    assert time.monotonic() - failed < 10
    assert told["state"] == "failing"
    assert "the one-token test" in told["reason"]
    assert ask(gateway).status_code == 503
    assert gateway.wait("/health/live?engine=1", 503)
    scripted_triton.play(turn(text="well"))
    gateway.wait("/health/ready", 200, 20)
    assert ask(gateway).json()["choices"][0]["message"]["content"] == "well"
    assert gateway.wait("/health/live?engine=1", 200)
