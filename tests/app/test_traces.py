"""Traces and metrics as a collector gets them."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import importlib.util
import json
import logging
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.api.openai.classify.routes import CLASSIFY
from gateway.api.openai.embeddings.routes import EMBEDDINGS
from gateway.api.openai.pool.routes import POOLING
from gateway.api.openai.rerank.routes import COHERE_RERANK, RERANK
from gateway.api.openai.score.routes import SCORE
from gateway.app import create_app
from gateway.generation import EngineChunk, EngineError, ErrorKind, GenerationRequest
from gateway.settings import ConfigError, load_settings
from gateway.settings.extras import pip_install
from gateway.telemetry.otel import names
from gateway.telemetry.traces import TraceIds
from tests.app.harness import USER, gateway, says
from tests.app.scripted import MODEL, Script, settings_for
from tests.telemetry.collector import Collector, Span, collecting

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"
SERVER, CLIENT, INTERNAL = 2, 3, 1


@pytest.fixture(autouse=True)
def collector() -> Iterator[Collector]:
    """It runs until exporters end: they retry, and draw numbers that Hypothesis takes for a fault of the next test."""
    with collecting() as running:
        yield running
        running.answers.set()
        for thread in threading.enumerate():
            if thread.name.lower().startswith("otel"):
                thread.join(60)


def exported(collector: Collector, **more: Any) -> dict[str, Any]:
    return {"traces": True, "endpoint": collector.url, "sample_ratio": 1.0, **more}


def by_name(spans: list[Span]) -> dict[str, Span]:
    named = {span.name: span for span in spans}
    assert len(named) == len(spans)
    return named


async def test_a_request_is_a_tree_of_spans(folder: Path, collector: Collector) -> None:
    async with gateway(folder, telemetry=exported(collector)) as running:
        headers = {"traceparent": PARENT, "x-request-id": "mine"}
        body = {"model": MODEL, "messages": USER, "max_tokens": 3, "temperature": 0.5, "seed": 7, "stop": ["secret"]}
        answer = await running.client.post("/v1/chat/completions", json=body, headers=headers)
        assert answer.status_code == 200
    assert running.engine.requests[0].traceparent is None  # where it is not switched on
    spans = by_name(collector.spans)
    order = ("POST /v1/chat/completions", "gateway.prompt", "gateway.queue", f"chat {MODEL}")
    assert set(spans) == set(order)
    server, prompt, queue, call = (spans[name] for name in order)
    assert {span.trace for span in spans.values()} == {TRACE}
    assert [span.parent for span in (server, prompt, queue, call)] == ["b7ad6b7169203331", *[server.id] * 3]
    assert [span.kind for span in (server, prompt, queue, call)] == [SERVER, INTERNAL, INTERNAL, CLIENT]
    times = [server.start, *(time for each in (prompt, queue, call) for time in (each.start, each.end)), server.end]
    assert times == sorted(times)
    assert not any(span.error for span in spans.values())
    assert server.attributes == {
        "http.request.method": "POST",
        "url.path": "/v1/chat/completions",
        "url.scheme": "http",
        "server.address": "localhost",
        "http.route": "/v1/chat/completions",
        "http.response.status_code": 200,
        "gateway.request.id": "mine",
        "gen_ai.request.model": MODEL,
    }
    assert call.events == ["gateway.first_token"]
    assert 0 < call.attributes.pop("gen_ai.response.time_to_first_chunk") < 60
    assert call.attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "nvidia.triton",
        "gen_ai.request.model": MODEL,
        "gen_ai.request.max_tokens": 3,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.top_p": 1.0,
        "gen_ai.request.top_k": 0,
        "gen_ai.request.seed": 7,
        "gen_ai.request.frequency_penalty": 0.0,
        "gen_ai.request.presence_penalty": 0.0,
        "gen_ai.request.choice.count": 1,
        "gen_ai.request.stream": False,
        "gen_ai.response.id": running.engine.requests[0].id,
        "gen_ai.response.model": MODEL,
        "gen_ai.response.finish_reasons": ["length"],
        "gen_ai.usage.input_tokens": len(running.engine.requests[0].prompt.ids),
        "gen_ai.usage.output_tokens": 3,
    }
    (resource,) = collector.resources()
    assert (resource["service.name"], bool(resource["service.instance.id"])) == ("triton-openai-gateway", True)


async def test_no_text_leaves_unless_it_is_switched_on(folder: Path, collector: Collector) -> None:
    words = [{"role": "user", "content": "my prompt"}]
    for capture in (False, True):
        async with gateway(
            folder, says(folder, "my answer"), telemetry=exported(collector, capture_content=capture)
        ) as running:
            for stream in (False, True):
                await running.chat(messages=words, stop=["my stop"], user="my user", stream=stream, max_tokens=99)
            await running.client.post("/v1/completions", json={"model": MODEL, "prompt": "my prompt", "max_tokens": 99})
        sent = b"".join(body for _, body in collector.bodies)
        assert [text in sent for text in (b"my prompt", b"my answer")] == [capture, capture]
        assert (b"my user" in sent, b"my stop" in sent) == (False, False)
    calls = [span for span in collector.spans if "gen_ai.input.messages" in span.attributes]
    assert len(calls) == 3
    for call in calls:
        ((asked,), (answered,)) = (json.loads(call.attributes[f"gen_ai.{way}.messages"]) for way in ("input", "output"))
        assert asked == {"role": "user", "parts": [{"type": "text", "content": "my prompt"}]}
        assert answered["parts"] == [{"type": "text", "content": "my answer"}]


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("traceparent", "garbage")],
        [("traceparent", PARENT.upper())],
        [("traceparent", "00-" + "0" * 32 + "-b7ad6b7169203331-01")],
        [("traceparent", "ff-" + PARENT[3:])],
        [("traceparent", PARENT), ("traceparent", PARENT)],
        [("traceparent", "é" * 9000)],
    ],
)
async def test_a_broken_context_is_as_good_as_none(
    folder: Path, collector: Collector, headers: list[tuple[str, str]]
) -> None:
    async with gateway(folder, telemetry=exported(collector)) as running:
        raw = [(name.encode(), value.encode()) for name, value in headers]
        answer = await running.client.post("/v1/chat/completions", json={"model": MODEL, "messages": USER}, headers=raw)
        assert answer.status_code == 200
    server = next(span for span in collector.spans if span.kind == SERVER)
    assert server.parent == ""
    assert server.trace != TRACE


async def test_who_calls_decides_whether_it_is_sampled(
    folder: Path, collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "gateway.access")
    told = exported(collector, sample_ratio=0.0, traceparent_to_triton=True)
    async with gateway(folder, telemetry=told) as running:
        for flag in ("00", "01"):
            headers = {"traceparent": PARENT[:-2] + flag}
            await running.client.post("/v1/chat/completions", json={"model": MODEL, "messages": USER}, headers=headers)
        await running.chat()
    unsampled, sampled, own = running.engine.requests
    assert (unsampled.traceparent, own.traceparent) == (None, None)
    call = next(span for span in collector.spans if span.kind == CLIENT)
    assert sampled.traceparent == f"00-{TRACE}-{call.id}-01"
    assert len(sampled.traceparent) == 55
    assert len([span for span in collector.spans if span.kind == SERVER]) == 1
    logged = [vars(record).get("trace_id") for record in caplog.records if record.name == "gateway.access"]
    assert logged == [TRACE, TRACE, None]


def fails(error: EngineError, *first: EngineChunk) -> Script:
    return lambda _request: [*first, error]


@pytest.mark.parametrize("stream", [False, True])
async def test_failures_end_the_spans_with_their_kind(folder: Path, collector: Collector, stream: bool) -> None:
    error = EngineError(ErrorKind.UNAVAILABLE, "Gone.", "secret words of the backend")
    async with gateway(folder, fails(error, EngineChunk(ids=[70])), telemetry=exported(collector)) as running:
        answer = await running.chat(stream=stream)
    server, call = (next(span for span in collector.spans if span.kind == kind) for kind in (SERVER, CLIENT))
    assert (call.error, call.attributes["error.type"]) == (True, "unavailable")
    assert (server.error, server.attributes["error.type"]) == (True, "service_unavailable")
    assert server.attributes["http.response.status_code"] == answer.status_code == (200 if stream else 503)
    assert b"secret words" not in b"".join(body for _, body in collector.bodies)


async def test_what_a_client_does_wrong_is_no_error_of_the_server(folder: Path, collector: Collector) -> None:
    async with gateway(folder, telemetry=exported(collector)) as running:
        await running.chat(temperature=99)
        await running.client.get("/health/live")
        await running.client.get("/metrics")
    (server,) = collector.spans
    assert (server.error, server.attributes["error.type"]) == (False, "decimal_above_max_value")


async def test_a_client_that_leaves_ends_its_spans(folder: Path, collector: Collector) -> None:
    never = asyncio.Event()

    def script(_request: GenerationRequest) -> list[Any]:
        return [EngineChunk(ids=[70]), never]

    async with gateway(folder, script, served=True, telemetry=exported(collector)) as running:
        body = {"model": MODEL, "messages": USER, "stream": True, "max_tokens": 40}
        async with running.client.stream("POST", "/v1/chat/completions", json=body) as answer:
            await anext(answer.aiter_lines())
        await running.engine.left.wait()
        metrics = (await running.client.get("/metrics")).text
        assert f'gateway_cancelled_tokens_upper_bound_total{{model="{MODEL}"}} 39.0' in metrics
    server, call = (next(span for span in collector.spans if span.kind == kind) for kind in (SERVER, CLIENT))
    assert (call.attributes["error.type"], server.attributes["error.type"]) == ("cancelled", "cancelled")
    assert call.attributes["gen_ai.usage.output_tokens"] == 1
    assert not server.error


async def test_metrics_are_taken_once_a_request(folder: Path, collector: Collector) -> None:
    telemetry = {"metrics": True, "endpoint": collector.url}
    async with gateway(folder, telemetry=telemetry) as running:
        await running.chat()
        await running.chat(stream=True)
        await running.chat(max_tokens=0)
        await running.client.get("/v1/models")
    found = collector.histograms()
    assert set(found) == {
        "gen_ai.server.request.duration",
        "gen_ai.server.time_to_first_token",
        "gen_ai.server.time_per_output_token",
        "gen_ai.client.token.usage",
    }
    durations = {
        attributes.get("error.type"): count for attributes, count, _ in found["gen_ai.server.request.duration"]
    }
    assert durations == {None: 2, "integer_below_min_value": 1}
    tokens = {
        attributes["gen_ai.token.type"]: (count, total)
        for attributes, count, total in found["gen_ai.client.token.usage"]
    }
    prompt = len(running.engine.requests[0].prompt.ids)
    assert tokens == {"input": (2, 2 * prompt), "output": (2, 10)}
    ((attributes, count, _),) = found["gen_ai.server.time_per_output_token"]
    assert count == 2
    assert attributes["gen_ai.operation.name"] == "chat"
    assert collector.spans == []


async def test_a_collector_that_hangs_costs_nothing(
    folder: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
    collector.answers.clear()
    async with gateway(folder, telemetry=exported(collector)) as running:
        answers = await asyncio.gather(*(running.chat() for _ in range(20)))
        assert {answer.status_code for answer in answers} == {200}
        begun = time.monotonic()
    assert time.monotonic() - begun < 8  # three seconds for what it still has to say


def test_off_nothing_of_the_sdk_is_imported() -> None:
    script = (
        "import sys, gateway.app, gateway.workers.worker\n"
        "from gateway.settings import Settings\n"
        "settings = Settings.model_validate({'models': [{'name': 'm', 'triton': {'url': 'x:1'}}]})\n"
        "gateway.app.create_app(settings)\n"
        "print([name for name in sys.modules if name.startswith(('opentelemetry.sdk', 'opentelemetry.exporter',"
        " 'opentelemetry.proto', 'gateway.telemetry.otel', 'requests'))])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, timeout=60)
    assert done.stdout.decode().strip() == "[]"


def test_what_cannot_be_exported_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_for(folder, telemetry={"traces": True})
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    with pytest.raises(ConfigError, match="OTEL_EXPORTER_OTLP_PROTOCOL: must be http/protobuf, not 'grpc'"):
        create_app(settings)
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_PROTOCOL")
    monkeypatch.setattr(importlib.util, "find_spec", lambda *_: None)
    with pytest.raises(ConfigError, match=re.escape(pip_install("otel"))):
        create_app(settings)


@pytest.mark.parametrize(("traces", "rejected"), [(False, False), (True, True)])
def test_a_variable_for_other_programs_does_not_end_a_start(folder: Path, traces: bool, rejected: bool) -> None:
    environment = {
        "GATEWAY_MODEL": "m",
        "GATEWAY_TRITON_URL": "x:1",
        "GATEWAY_TRACES": str(traces),
        "OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4317",
    }
    with pytest.raises(ConfigError, match="http://") if rejected else contextlib.nullcontext():
        load_settings(environment=environment)


async def test_the_name_of_a_key_is_told_and_never_the_key(folder: Path, collector: Collector, tmp_path: Path) -> None:
    secret = "sk-never-to-be-seen"
    digest = "sha256:" + hashlib.sha256(secret.encode()).hexdigest()
    auth = {"keys": [{"name": "alice", "hash": digest}]}
    async with gateway(folder, telemetry=exported(collector, metrics=True), auth=auth) as running:
        body = {"model": MODEL, "messages": USER}
        for key in (secret, "sk-wrong"):
            headers = {"Authorization": f"Bearer {key}"}
            await running.client.post("/v1/chat/completions", json=body, headers=headers)
    known, unknown = (span for span in collector.spans if span.kind == SERVER)
    assert (known.attributes["gateway.key.name"], "gateway.key.name" in unknown.attributes) == ("alice", False)
    assert unknown.attributes["error.type"] == "401"
    sent = b"".join(body for _, body in collector.bodies)
    assert (secret.encode() in sent, digest.encode() in sent, b"sk-wrong" in sent) == (False, False, False)


async def test_what_has_no_route_is_named_by_its_method(folder: Path, collector: Collector) -> None:
    async with gateway(folder, telemetry=exported(collector)) as running:
        await running.client.get("/v1/somewhere/secret")
        await running.client.request("BREW", "/v1/models")
    assert [span.name for span in collector.spans] == ["GET", "HTTP /v1/models"]


async def test_a_response_in_the_background_stays_in_the_trace_of_its_request(
    folder: Path, collector: Collector, tmp_path: Path
) -> None:
    state = {"path": str(tmp_path / "state.sqlite")}
    async with gateway(folder, telemetry=exported(collector), state=state) as running:
        body = {"model": MODEL, "input": "Hi", "background": True}
        made = await running.client.post("/v1/responses", json=body)
        path = f"/v1/responses/{made.json()['id']}"
        while (await running.client.get(path)).json()["status"] != "completed":  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0)
    server = next(span for span in collector.spans if span.name == "POST /v1/responses")
    call = next(span for span in collector.spans if span.kind == CLIENT)
    assert (call.parent, call.name) == (server.id, f"chat {MODEL}")


async def test_each_choice_has_its_span_up_to_a_bound(folder: Path, collector: Collector) -> None:
    telemetry = exported(collector, traceparent_to_triton=True)
    async with gateway(folder, telemetry=telemetry) as running:
        answer = await running.chat(n=20)
        assert len(answer.json()["choices"]) == 20
    assert len([span for span in collector.spans if span.kind == CLIENT]) == 16
    assert len({request.traceparent for request in running.engine.requests} - {None}) == 16


def test_log_records_outside_of_a_request_have_no_trace() -> None:
    record = logging.LogRecord("a", logging.INFO, "", 1, "b", (), None)
    assert TraceIds().filter(record)
    assert not hasattr(record, "trace_id")


def test_each_endpoint_of_encoders_has_an_operation() -> None:
    endpoints = (EMBEDDINGS, RERANK, COHERE_RERANK, SCORE, CLASSIFY, POOLING)
    assert {path for each in endpoints for path in each.routes} - names.OPERATIONS.keys() == set()
