"""The application around the chat endpoint: models, health, metrics, keys, limits, ids, the log, starts and ends."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pythonjsonlogger.json import JsonFormatter

from gateway.app import create_app
from gateway.generation import EngineChunk, EngineError, ErrorKind
from gateway.settings import ConfigError, Settings
from gateway.telemetry.logs import logging_config
from tests.app.harness import USER, gateway, says
from tests.app.scripted import (
    MODEL,
    TOKENS,
    ByteIds,
    ScriptedBackend,
    ScriptedEngine,
    settings_for,
    write_tokenizer,
)


def error_of(answer: Any, status: int) -> dict[str, Any]:
    assert answer.status_code == status
    assert set(answer.json()) == {"error"}
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
    return dict(answer.json()["error"])


async def test_health_tells_live_from_ready(folder: Path) -> None:
    async with gateway(folder, engine_up=False) as running:
        assert (await running.client.get("/health/live")).status_code == 200
        for path in ("/health/ready", "/health"):
            answer = await running.client.get(path)
            assert answer.status_code == 503
            assert answer.json()["models"][MODEL] == {
                "ready": False,
                "state": "unreachable",
                "reason": "Triton has not been reached yet.",
            }
        assert f'gateway_model_ready{{model="{MODEL}"}} 0.0' in (await running.client.get("/metrics")).text
        described = (await running.client.get(f"/v1/models/{MODEL}")).json()["gateway"]
        assert (described["ready"], described["path"]) == (False, None)
        running.backend.arrive(running.engine)
        assert f'gateway_model_ready{{model="{MODEL}"}} 1.0' in (await running.client.get("/metrics")).text
        assert (await running.client.get("/health/ready")).json() == {
            "status": "ready",
            "models": {MODEL: {"ready": True, "state": "ready"}},
        }


async def test_tokens_that_come_are_evidence_for_health_checks(folder: Path) -> None:
    gate = asyncio.Event()
    script = [EngineChunk(ids=ByteIds(folder).of("a")), gate, EngineChunk(final=True)]
    async with gateway(folder, lambda _: script) as running:
        latest = running.backend.health.latest
        before = time.perf_counter()
        answer = asyncio.create_task(running.chat())
        while latest() < before:  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0)
        gate.set()
        assert (await answer).status_code == 200


async def test_health_keeps_reasons_to_itself_where_the_api_asks_for_keys(folder: Path) -> None:
    async with gateway(folder, engine_up=False, server={"api_keys": ["secret"]}) as running:
        answer = await running.client.get("/health/ready")
        assert (answer.status_code, answer.json()["models"][MODEL]) == (503, {"ready": False, "state": "unreachable"})


async def test_metrics_count_requests_and_tokens(folder: Path) -> None:
    async with gateway(folder) as running:
        await running.chat()
        await running.chat(max_tokens=0)
        await running.client.get("/v1/guess/%F0%9F")
        text = (await running.client.get("/metrics")).text
        for line in (
            'gateway_requests_total{endpoint="/v1/chat/completions",model="scripted",status="200"} 1.0',
            'gateway_requests_total{endpoint="/v1/chat/completions",model="",status="400"} 1.0',
            'gateway_requests_total{endpoint="unmatched",model="",status="404"} 1.0',
            'gateway_completion_tokens_total{model="scripted"} 5.0',
            'gateway_prompt_tokens_total{model="scripted"} 21.0',
            'gateway_requests_in_flight{model="scripted"} 0.0',
            'gateway_requests_cancelled_total{model="scripted"} 0.0',
            'gateway_engine_failures_total{kind="timeout",model="scripted"} 0.0',
            'gateway_time_to_first_token_seconds_count{model="scripted"} 1.0',
            'gateway_inter_token_seconds_count{model="scripted"} 4.0',
        ):
            assert line in text.splitlines()


KEYS = {"server": {"api_keys": ["first", "sécond"]}}


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (None, 401),
        (b"", 401),
        (b"first", 401),
        (b"Basic first", 401),
        (b"Bearer", 401),
        (b"Bearer ", 401),
        (b"Bearer third", 401),
        (b"Bearer first second", 401),
        (b"Bearer \xff", 401),
        (b"Bearer first", 200),
        (b"bearer  first", 200),
        ("Bearer sécond".encode(), 200),
    ],
)
async def test_keys(folder: Path, header: bytes | None, status: int) -> None:
    headers = [] if header is None else [(b"authorization", header)]
    async with gateway(folder, **KEYS) as running:
        answer = await running.client.get("/v1/models", headers=headers)
        assert answer.status_code == status
        if status == 401:
            assert error_of(answer, 401)["code"] == "invalid_api_key"
            assert answer.headers["www-authenticate"] == "Bearer"
            assert answer.headers["x-request-id"]


async def test_what_is_open_without_a_key(folder: Path) -> None:
    async with gateway(folder, **KEYS) as running:
        for path in (
            "/health",
            "/health/live",
            "/health/ready",
            "/health/",
            "/metrics",
            "/version",
            "/docs",
            "/openapi.json",
            "/",
        ):
            assert (await running.client.get(path)).status_code == 200
        for path in ("/v1/models", "/v1/models/", f"/v1/models/{MODEL}", "/v1/nothing", "/v1", "/health/../v1/models"):
            assert (await running.client.get(path)).status_code == 401
        assert (await running.chat()).status_code == 401


def test_an_open_gateway_warns(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    create_app(settings_for(folder), backend_factory=lambda _: ScriptedBackend(None))
    assert "GATEWAY_API_KEYS" in caplog.text
    caplog.clear()
    create_app(settings_for(folder, **KEYS), backend_factory=lambda _: ScriptedBackend(None))
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (b"abc-1.2_X", True),
        (b"x" * 128, True),
        (b"x" * 129, False),
        (b"", False),
        (b"a b", False),
        (b"a\xff", False),
        (b"{evil}", False),
    ],
)
async def test_request_ids(folder: Path, given: bytes, kept: bool) -> None:
    async with gateway(folder) as running:
        for path in ("/v1/models", "/v1/nothing", "/health/live"):
            answer = await running.client.get(path, headers=[(b"x-request-id", given)])
            assert (answer.headers["x-request-id"] == given.decode("latin-1")) is kept
            assert len(answer.headers.get_list("x-request-id")) == 1
            assert answer.headers["x-request-id"]


async def test_a_streamed_body_over_the_limit(folder: Path) -> None:
    async def large() -> Any:
        for _ in range(1024):
            yield b" " * 4096

    async def small() -> Any:
        yield json.dumps({"model": MODEL, "messages": USER}).encode()

    async with gateway(folder, served=True, limits={"max_body_bytes": 65536}) as running:
        error_of(await running.client.post("/v1/chat/completions", content=large()), 413)
        assert (await running.client.post("/v1/chat/completions", content=small())).status_code == 200


async def test_the_default_limit_is_16_mib(folder: Path) -> None:
    async with gateway(folder) as running:
        assert "16 MiB" in error_of(await running.chat(user="x" * 2**24), 413)["message"]


def access_lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """The access log as its JSON lines."""
    spec = logging_config("info")["formatters"]["json"]
    formatter = JsonFormatter(spec["fmt"], datefmt=spec["datefmt"], rename_fields=spec["rename_fields"])
    return [json.loads(formatter.format(record)) for record in caplog.records if record.name == "gateway.access"]


async def test_the_access_log(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    secret = [{"role": "user", "content": "a secret"}]
    async with gateway(folder, **KEYS) as running:
        headers = {"authorization": "Bearer first", "x-request-id": "find-me"}
        for stream in (False, True):
            body = {"model": MODEL, "messages": secret, "stream": stream, "user": "u-1", "max_tokens": 3}
            body["metadata"] = {"ticket": "7"}
            await running.client.post("/v1/chat/completions", json=body, headers=headers)
        await running.client.get("/v1/models")
        await running.client.get("/health/ready")
    lines = access_lines(caplog)
    assert len(lines) == 3
    for line in lines[:2]:
        assert line["event"] == "request"
        assert {key: line[key] for key in ("request_id", "method", "path", "status", "model", "finish_reason")} == {
            "request_id": "find-me",
            "method": "POST",
            "path": "/v1/chat/completions",
            "status": 200,
            "model": MODEL,
            "finish_reason": "length",
        }
        assert line["completion_tokens"] == 3
        assert line["prompt_tokens"] == 27
        assert 0 < line["ttft_s"] <= line["duration_s"]
        assert line["client"]
        assert line["annotations"] == {"user": "u-1", "metadata": {"ticket": "7"}}
        assert line["level"] == "INFO"
        assert line["time"]
    assert (lines[2]["status"], "model" in lines[2]) == (401, False)
    logged = json.dumps([{key: str(value) for key, value in vars(record).items()} for record in caplog.records])
    assert "secret" not in logged
    assert "first" not in logged


async def test_the_access_log_has_azures_path_as_sent(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    path = f"/openai/deployments/{MODEL}/completions"
    async with gateway(folder) as running:
        assert (await running.client.post(path, json={"prompt": "Hi"})).status_code == 200
    (line,) = access_lines(caplog)
    assert (line["path"], line["model"]) == (path, MODEL)


async def test_the_access_log_of_failures(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    failure = EngineError(ErrorKind.QUEUE_FULL, "Full.", "the backend's own words")
    async with gateway(folder, lambda _: [failure]) as running:
        await running.chat()
    (line,) = access_lines(caplog)
    assert (line["status"], line["error"]) == (429, "rate_limit_exceeded")
    assert any(getattr(record, "detail", "") == "the backend's own words" for record in caplog.records)


async def test_a_client_that_left_is_logged_as_such(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    never = asyncio.Event()
    async with gateway(folder, lambda _: [never], served=True) as running:
        asking = asyncio.create_task(running.chat())
        await running.engine.asked.wait()
        asking.cancel()
        await asyncio.wait_for(running.engine.left.wait(), 5)
    (line,) = [line for line in access_lines(caplog) if line["method"] == "POST"]
    assert (line["status"], line["disconnected"]) == (499, True)


KNOWS = replace(TOKENS, max_seq_len=100)


async def test_tokenizer_and_context_from_what_is_discovered(folder: Path) -> None:
    features = replace(KNOWS, tokenizer_dir=str(folder))
    engine = ScriptedEngine(says(folder, "Hi"), features)
    app = create_app(settings_for(None, max_seq_len=None), backend_factory=lambda _: ScriptedBackend(engine))
    async with app.router.lifespan_context(app):
        pass
    async with gateway(folder, features=features, max_seq_len=None) as running:
        described = (await running.client.get(f"/v1/models/{MODEL}")).json()["gateway"]
        assert described["max_seq_len"] == 100
        assert (await running.chat()).status_code == 200
    async with gateway(folder, features=features, max_seq_len=50) as running:
        assert (await running.client.get(f"/v1/models/{MODEL}")).json()["gateway"]["max_seq_len"] == 50
    async with gateway(folder, features=features, max_seq_len=5000) as running:  # the engine knows better
        assert (await running.client.get(f"/v1/models/{MODEL}")).json()["gateway"]["max_seq_len"] == 100


@pytest.mark.parametrize(
    ("features", "changes", "key"),
    [
        (TOKENS, {"max_seq_len": None}, "models[0].max_seq_len (GATEWAY_MAX_SEQ_LEN)"),
        (KNOWS, {"tokenizer": None}, "models[0].tokenizer (GATEWAY_TOKENIZER)"),
        (replace(KNOWS, tokenizer_dir="/nowhere"), {"tokenizer": None}, "models[0].tokenizer (GATEWAY_TOKENIZER)"),
        (TOKENS, {"tokenizer": Path("/nowhere")}, "models[0].tokenizer (GATEWAY_TOKENIZER)"),
        (TOKENS, {"template": Path("/nowhere.jinja")}, "models[0].template (GATEWAY_TEMPLATE)"),
        (TOKENS, {"tokenizer": None, "max_seq_len": None}, "models[0].tokenizer (GATEWAY_TOKENIZER)"),
    ],
)
async def test_a_start_that_lacks_something_names_the_key(folder: Path, features: Any, changes: Any, key: str) -> None:
    settings = settings_for(folder)
    settings = Settings(models=(settings.models[0].model_copy(update=changes),))
    backend = ScriptedBackend(ScriptedEngine(says(folder, "x"), features))
    app = create_app(settings, backend_factory=lambda _: backend)
    with pytest.raises(ConfigError) as caught:
        async with app.router.lifespan_context(app):
            raise AssertionError("it started")
    assert str(caught.value).startswith(key)
    missing = {"max_seq_len": None}.items() <= changes.items()
    assert ("max_seq_len (GATEWAY_MAX_SEQ_LEN)" in str(caught.value)) == missing  # all that is missing, at once
    assert "\n" not in str(caught.value)
    assert backend.closed


async def test_a_tokenizer_folder_without_a_template(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    (tmp_path / "tokenizer_config.json").unlink()
    app = create_app(settings_for(tmp_path), backend_factory=lambda _: ScriptedBackend(None))
    with pytest.raises(ConfigError, match=r"models\[0\]\.template"):
        async with app.router.lifespan_context(app):
            raise AssertionError("it started")


async def test_what_is_missing_shows_in_readiness_when_triton_comes_later(folder: Path) -> None:
    timeouts = {"discovery_s": 0}
    async with gateway(folder, engine_up=False, max_seq_len=None, timeouts=timeouts) as running:
        assert (await running.chat()).status_code == 503
        running.backend.arrive(running.engine)
        answer = await running.client.get("/health/ready")
        assert answer.status_code == 503
        assert "GATEWAY_MAX_SEQ_LEN" in answer.json()["models"][MODEL]["reason"]
        told = (await running.client.get(f"/v1/models/{MODEL}")).json()["gateway"]["reason"]
        assert told
        assert "GATEWAY" not in told  # which is for the operator
        rejected = await running.chat()
        assert (rejected.status_code, rejected.json()["error"]["code"]) == (400, "model_not_supported")
        running.engine.features = KNOWS
        running.backend.arrive(running.engine)
        assert (await running.client.get("/health/ready")).status_code == 200
        assert (await running.chat()).status_code == 200
