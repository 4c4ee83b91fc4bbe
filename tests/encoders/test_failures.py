"""Requests to encoders that fail, are given up, are limited, or lose their endpoint."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from gateway.generation.engine import EngineError, ErrorKind
from gateway.settings import Settings
from tests.doubles.encoders.encoder_server import EncoderServer
from tests.encoders.conftest import EncoderGateway, serving
from tests.stack import GatewayProcess
from tests.telemetry.collector import collecting
from tests.waiting import until

TEXTS = [f"text {number}" for number in range(11)]
BATCH = 8


def _with(fault: str, place: int) -> list[str]:
    return [f"{text} {fault}" if number == place else text for number, text in enumerate(TEXTS)]


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("!nan", "not finite (input[6])"),
        ("!inf", "not finite (input[6])"),
        ("!zeros", "a vector of zeros (input[6])"),
        ("!row", "malformed (input[6], input[9], input[10])"),
        ("!fail", "process the request (input[6], input[9], input[10])"),
    ],
)
async def test_a_wrong_result_fails_the_request_and_names_the_input(
    encoders: EncoderServer, fault: str, words: str
) -> None:
    async with serving(encoders.model("nim")) as gateway:
        answer = await gateway.embed("nim", _with(fault, 6))
        metrics = (await gateway.client.get("/metrics")).text
        assert (await gateway.embed("nim", TEXTS)).status_code == 200
    assert answer.status_code == 500  # of the batch with the longest ones
    assert words in answer.json()["error"]["message"]
    assert "/secret" not in answer.text
    assert 'gateway_engine_failures_total{kind="internal",model="nim"} 1.0' in metrics


async def _metric(gateway: EncoderGateway, name: str) -> float:
    text = (await gateway.client.get("/metrics")).text
    [line] = [each for each in text.splitlines() if each.startswith(f'{name}{{model="')]
    return float(line.rsplit(" ", 1)[1])


@pytest.mark.parametrize("place", [0, 5, 7])
async def test_an_input_that_the_model_rejects_is_found(encoders: EncoderServer, place: int) -> None:
    """By halves of its batch, so by as many more requests as it takes to halve it, and one that proves it."""
    texts = [f"{text} {'w ' * 150 if place == number else 'w' * 300}" for number, text in enumerate(TEXTS[:BATCH])]
    async with serving(encoders.model("nim")) as gateway:
        error = (await gateway.embed("nim", texts)).json()["error"]
        assert (error["param"], error["code"]) == (f"input[{place}]", "context_length_exceeded")
        assert f"(input[{place}])" in error["message"]
        sent = encoders.requests("nim")
        assert 4 <= len(sent) <= 5
        assert await _metric(gateway, "gateway_prompt_tokens_total") == sum(
            len(text.split()) for each in sent for [text] in each["inputs"]["text"][1] if not _long(each)
        )
        assert (
            'gateway_engine_failures_total{kind="context_length_exceeded",model="nim"} 1.0'
            in (await gateway.client.get("/metrics")).text
        )


def _long(request: dict[str, Any]) -> bool:
    return any(len(text.split()) > 20 for [text] in request["inputs"]["text"][1])


async def test_an_outage_is_not_searched_for_an_input(encoders: EncoderServer) -> None:
    async with serving(encoders.model("nim")) as gateway:
        encoders.set("failing")
        error = (await gateway.embed("nim", TEXTS[:8])).json()["error"]
    assert (error["param"], len(encoders.requests("nim"))) == (None, 1)


@pytest.mark.parametrize("transport", ["h2", "grpcio"])
async def test_a_deadline_ends_the_work(encoders: EncoderServer, transport: str) -> None:
    model = encoders.model("nim")
    model["triton"]["transport"] = transport
    async with serving(model, timeouts={"first_token_s": 0.5}) as gateway:
        begun = time.monotonic()
        answer = await gateway.embed("nim", ["!wait"])
        assert 0.5 <= time.monotonic() - begun < 5
        await until(lambda: any(each.get("cancelled") for each in encoders.requests("nim")))
    assert (answer.status_code, "within 0.5 seconds" in answer.text) == (504, True)


async def test_several_batches_have_until_the_end_of_the_answer(encoders: EncoderServer) -> None:
    timeouts = {"first_token_s": 0.01, "total_s": 1}
    async with serving(encoders.model("nim", max_parallel_generations=1), timeouts=timeouts) as gateway:
        answer = await gateway.embed("nim", [*TEXTS, "!wait"])
    assert (answer.status_code, "within 1 seconds" in answer.text) == (504, True)
    assert len(encoders.requests("nim")) == 2


async def test_two_batches_of_a_request_run_at_a_time(encoders: EncoderServer) -> None:
    if encoders.url("nim") == encoders.triton.grpc_url:
        pytest.skip("one instance of a model in Triton takes one batch at a time")
    async with serving(encoders.model("nim")) as gateway:
        asked = asyncio.ensure_future(gateway.embed("nim", ["!wait"] * 4 * BATCH))
        await until(lambda: len(encoders.requests("nim")) == 2)
        assert (await gateway.embed("nim", "a")).status_code == 200
        assert len(encoders.requests("nim")) == 3
        encoders.set("going")
        assert (await asked).status_code == 200


async def test_batches_beside_one_that_fails_are_no_clients_that_left(encoders: EncoderServer) -> None:
    if encoders.url("bge_py") == encoders.triton.grpc_url:
        pytest.skip("one instance of a model in Triton takes one batch at a time")
    async with serving(encoders.model("bge_py")) as gateway:
        answer = await gateway.embed("bge_py", [*["!wait"] * 8, "a text that is longer !fail"])
        assert answer.status_code == 500
        assert await _metric(gateway, "gateway_requests_cancelled_total") == 0


async def test_an_abort_ends_what_runs_and_what_waits(encoders: EncoderServer) -> None:
    model = encoders.model("nim", admission={"max_running": 1})
    async with serving(model) as gateway:
        asked = [asyncio.ensure_future(gateway.embed("nim", [f"!wait {number}"])) for number in range(2)]
        served = gateway.app.state.registry.get("nim")
        await until(lambda: len(encoders.requests("nim")) == 1 and served.now().waiting == 1)
        served.abort(EngineError(ErrorKind.UNAVAILABLE, "The gateway is shutting down."))
        answers = await asyncio.gather(*asked)
        await until(lambda: any(each.get("cancelled") for each in encoders.requests("nim")))
    assert [answer.status_code for answer in answers] == [503, 503]
    assert len(encoders.requests("nim")) == 1


async def test_requests_to_triton_take_turns(encoders: EncoderServer) -> None:
    """Each is one unit of admission, and the batches of one request do not fill the queue of others."""
    async with serving(encoders.model("nim", admission={"max_running": 1, "max_waiting": 1})) as gateway:
        asked = asyncio.ensure_future(gateway.embed("nim", [*TEXTS * 2, "!wait"]))
        served = gateway.app.state.registry.get("nim")
        await until(lambda: len(encoders.requests("nim")) == 1)
        other = asyncio.ensure_future(gateway.embed("nim", "a"))
        await until(lambda: served.now().waiting == 1)
        assert served.now().running == 1
        encoders.set("going")
        answers = await asyncio.gather(asked, other)
    assert [(each.status_code, len(each.json().get("data", ()))) for each in answers] == [(200, 23), (200, 1)]
    assert len(encoders.requests("nim")) == 4


def _keys(**limits: int) -> dict[str, Any]:
    digest = hashlib.sha256(b"sk-team").hexdigest()
    return {"keys": [{"name": "team", "hash": f"sha256:{digest}", "limits": limits}]}


@pytest.mark.parametrize("name", ["bge_py", "nim"])
async def test_tokens_of_a_key(encoders: EncoderServer, name: str) -> None:
    """Its limit counts the tokens of all inputs, known before the request or after it."""
    async with serving(encoders.model(name), auth=_keys(tokens_per_minute=40)) as gateway:
        gateway.client.headers["Authorization"] = "Bearer sk-team"
        first = await gateway.embed(name, ["a b c d e f"] * 4 if name == "bge_py" else ["a b c d e"] * 8 + ["f g"])
        second = await gateway.embed(name, ["a"] * 4)
    if name == "bge_py":  # 4 x 13 tokens
        assert (first.status_code, second.status_code) == (429, 200)
        return
    assert (first.status_code, first.json()["usage"]["prompt_tokens"]) == (200, 42)
    assert (second.status_code, "tokens" in second.json()["error"]["message"]) == (429, True)


@pytest.mark.parametrize("end", ["!fail", "!wait"])
async def test_batches_that_ended_before_the_request_did_are_charged(encoders: EncoderServer, end: str) -> None:
    """A request that failed has used what its first batches had, and so has one whose client has left."""
    model = encoders.model("bge_py", max_parallel_generations=1)
    async with serving(model, auth=_keys(tokens_per_minute=130)) as gateway:
        gateway.client.headers["Authorization"] = "Bearer sk-team"
        asked = asyncio.ensure_future(gateway.embed("bge_py", [*["abcdefgh"] * 8, f"a longer text {end}"]))
        await until(lambda: len(encoders.requests("bge_py")) == 2)
        if end == "!wait":
            asked.cancel()
        [ended] = await asyncio.gather(asked, return_exceptions=True)
        assert isinstance(ended, asyncio.CancelledError) or getattr(ended, "status_code", 0) == 500
        assert await _metric(gateway, "gateway_prompt_tokens_total") == 80
        assert (await gateway.embed("bge_py", ["abcdefgh"] * 5)).status_code == 200
        assert (await gateway.embed("bge_py", ["abcdefgh"])).status_code == 429


async def test_in_flight_of_a_key(encoders: EncoderServer) -> None:
    async with serving(encoders.model("nim"), auth=_keys(in_flight=1)) as gateway:
        gateway.client.headers["Authorization"] = "Bearer sk-team"
        asked = asyncio.ensure_future(gateway.embed("nim", "!wait"))
        await until(lambda: len(encoders.requests("nim")) == 1)
        assert (await gateway.embed("nim", "a")).status_code == 429
        encoders.set("going")
        assert (await asked).status_code == 200
        assert (await gateway.embed("nim", TEXTS)).status_code == 200, "its batches are one request"


async def test_a_trace_has_each_request_to_triton(encoders: EncoderServer) -> None:
    with collecting() as collector:
        telemetry = {"traces": True, "endpoint": collector.url, "sample_ratio": 1.0}
        async with serving(encoders.model("bge_py"), telemetry=telemetry) as gateway:
            assert (await gateway.embed("bge_py", TEXTS)).status_code == 200
            assert (await gateway.embed("bge_py", "!fail")).status_code == 500
        spans = collector.spans
    names = [span.name for span in spans]
    assert names.count("POST /v1/embeddings") == 2
    calls = [span for span in spans if span.name == "embeddings bge_py"]
    assert [span.error for span in calls] == [False, False, True]
    assert sum(span.attributes["gen_ai.usage.input_tokens"] for span in calls[:2]) == sum(len(t) + 2 for t in TEXTS)
    assert calls[0].attributes["gen_ai.operation.name"] == "embeddings"
    assert names.count("gateway.prompt") == 2
    assert names.count("gateway.queue") == 3


def test_settings_of_another_task_are_rejected(encoders: EncoderServer) -> None:
    for name, given in (("template", "hermes"), ("mirror", {"model": "x", "url": "x:1"}), ("max_top_logprobs", 3)):
        with pytest.raises(ValueError, match=f"{name}"):
            Settings.model_validate({"models": [encoders.model("nim", **{name: given})]})


@pytest.fixture
def process(encoders: EncoderServer, tmp_path: Path) -> Iterator[GatewayProcess]:
    """A gateway as a process, before the model ``nim``, whose requests go one after the other."""
    settings = {"models": [encoders.model("nim", max_parallel_generations=1)], "server": {"reload_s": 0}}
    file = tmp_path / "gateway.yaml"
    file.write_text(yaml.safe_dump(settings))
    with GatewayProcess(tmp_path / "gateway.log", GATEWAY_CONFIG=str(file)) as running:
        yield running


async def test_a_client_that_leaves_ends_the_work(encoders: EncoderServer, process: GatewayProcess) -> None:
    body = {"model": "nim", "input": ["!wait", *TEXTS]}
    async with httpx.AsyncClient(base_url=process.url, timeout=30) as client:
        asked = asyncio.ensure_future(client.post("/v1/embeddings", json=body, headers={"x-request-id": "same"}))
        await until(lambda: len(encoders.requests("nim")) == 1)
        asked.cancel()
        await until(lambda: any(each.get("cancelled") for each in encoders.requests("nim")))
        encoders.set("going")
        for _ in range(2):
            again = await client.post(
                "/v1/embeddings", json={"model": "nim", "input": "a"}, headers={"x-request-id": "same"}
            )
            assert again.status_code == 200
    asked_for = encoders.requests("nim")
    assert len(asked_for) == 3, "no batch was sent after the client had left"
    assert len({each["id"] for each in asked_for}) == 3
    assert all(each["id"].startswith("same-") for each in asked_for)
    assert process.metric("gateway_requests_cancelled_total", 'model="nim"') == 1
    assert process.metric("gateway_requests_in_flight", 'model="nim"') == 0


@pytest.fixture
def two(encoders: EncoderServer, encoder_folder: Path, tmp_path: Path) -> Iterator[EncoderServer]:
    """A second server with the model ``nim``."""
    with EncoderServer(tmp_path, encoder_folder, scripted=["nim"]) as other:
        yield other


async def test_a_request_goes_elsewhere(encoders: EncoderServer, two: EncoderServer) -> None:
    """An endpoint that fails all costs no request, and one that is killed none either."""
    endpoints = [server.url("nim") for server in (encoders, two)]
    model = encoders.model("nim")
    model["triton"] = {"endpoints": endpoints, "model": "nim", "balance": {"slow_start_s": 0}}
    async with serving(model) as gateway:
        backend = gateway.app.state.registry.get("nim").backend
        await until(lambda: all(each.condition.ready for each in backend.endpoints))
        two.set("failing")
        for _ in range(8):
            assert (await gateway.embed("nim", TEXTS)).status_code == 200
        assert two.requests("nim")
        assert await _metric(gateway, "gateway_retries_elsewhere_total") == len(two.requests("nim"))
        two.set("well")
        two.kill()
        answers = await asyncio.gather(*(gateway.embed("nim", TEXTS) for _ in range(8)))
        assert {answer.status_code for answer in answers} == {200}
