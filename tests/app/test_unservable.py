"""A model that cannot be served, or with losses: what clients, operators and gateway check URL are told."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import urllib.error
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.app import create_app
from gateway_ops.check.endpoint import describe_gateway
from gateway_ops.check.findings import Finding, Severity
from tests.app.documented import DocumentedClient
from tests.app.harness import USER, gateway
from tests.app.scripted import MODEL, TOKENS, settings_for, write_tokenizer
from tests.triton.scripted_triton import ScriptedTriton, stock_configs

CHAT = {"model": MODEL, "messages": USER, "max_tokens": 1}
COMPLETION = {"model": MODEL, "prompt": "Hi", "max_tokens": 1}
RESPONSE = {"model": MODEL, "input": "Hi", "max_output_tokens": 16}
GENERATING = [
    ("/v1/chat/completions", CHAT),
    ("/v1/chat/completions", {**CHAT, "stream": True}),
    ("/v1/chat/completions/render", CHAT),
    ("/v1/completions", COMPLETION),
    ("/v1/completions", {**COMPLETION, "stream": True}),
    ("/v1/completions", {**COMPLETION, "prompt": [[1, 2], [3]]}),
    ("/v1/responses", RESPONSE),
    ("/v1/responses", {**RESPONSE, "stream": True}),
]
COUNTING = [("/tokenize", {"prompt": "Hi"}), ("/detokenize", {"tokens": [1]})]
REASON = "model 'tensorrt_llm' requires inputs that the gateway does not send: image"


def with_a_required_image() -> dict[str, Any]:
    configs = stock_configs()
    configs["tensorrt_llm"].input.add(name="image")
    return configs


@contextlib.asynccontextmanager
async def gateway_before(triton: str, folder: Path | None) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a gateway before a Triton; without a folder the tokenizer is to come from there."""
    app = create_app(settings_for(folder, triton={"url": triton}, timeouts={"discovery_s": 0}))
    transport = httpx.ASGITransport(app=app)
    base = "http://localhost"
    async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url=base) as client:
        yield client


async def until_ready(client: httpx.AsyncClient, status: int, reason: str = "") -> None:
    """Wait until readiness has a status and says something."""

    async def poll() -> None:
        while True:
            answer = await client.get("/health/ready")
            told = answer.json()["models"][MODEL]
            if answer.status_code == status and reason in told.get("reason", ""):
                return
            await asyncio.sleep(0.02)

    await asyncio.wait_for(poll(), 10)


@pytest.mark.parametrize("tokenizer", ["configured", "of Triton"])
async def test_clients_are_told_not_to_try_again(
    folder: Path, tokenizer: str, caplog: pytest.LogCaptureFixture
) -> None:
    requests = GENERATING if tokenizer == "configured" else GENERATING + COUNTING
    async with (
        ScriptedTriton(configs=with_a_required_image()) as triton,
        gateway_before(triton.url, folder if tokenizer == "configured" else None) as client,
    ):
        await until_ready(client, 503, REASON)
        for path, body in requests:
            answer = await client.post(path, json=body)
            error = answer.json()["error"]
            assert (answer.status_code, answer.headers["x-should-retry"]) == (400, "false"), path
            assert "retry-after" not in answer.headers
            assert (error["type"], error["param"], error["code"]) == (
                "invalid_request_error",
                None,
                "model_not_supported",
            )
            assert triton.url not in answer.text
            assert "image" not in answer.text
        listed = (await client.get(f"/v1/models/{MODEL}")).json()["gateway"]
        assert (listed["ready"], listed["reason"]) == (False, error["message"])
    assert any(REASON in getattr(record, "detail", "") for record in caplog.records if record.levelno > logging.INFO)


async def test_service_begins_once_the_model_fits(folder: Path) -> None:
    async with ScriptedTriton(configs=with_a_required_image()) as triton, gateway_before(triton.url, folder) as client:
        await until_ready(client, 503, REASON)
        triton.configs.update(stock_configs())
        await until_ready(client, 200)
        assert (await client.post("/v1/completions", json=COMPLETION)).status_code == 200


async def test_what_passes_by_itself_may_be_tried_again(folder: Path) -> None:
    async with ScriptedTriton(configs=with_a_required_image()) as triton, gateway_before(triton.url, folder) as client:
        await until_ready(client, 503, REASON)
        await triton.stop()
        await until_ready(client, 503, "unreachable")
        answer = await client.post("/v1/chat/completions", json=CHAT)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert answer.json()["error"]["code"] == "service_unavailable"


HOST = "127.0.0.1"
KEYS = {"server": {"api_keys": ["key"]}}


async def test_a_model_without_its_triton_tells_clients_no_address(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    folder = write_tokenizer(tmp_path / "secret-folder")
    triton = {"url": f"{HOST}:1", "metrics_url": f"http://{HOST}:2/metrics"}
    app = create_app(settings_for(folder, triton=triton, timeouts={"discovery_s": 0}))  # the real backend
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app=app)
        async with DocumentedClient(False, base_url="http://localhost", transport=transport) as client:
            body = {"model": MODEL, "messages": USER, "prompt": "Hi"}
            answers = [
                await client.get("/v1/models"),
                await client.get(f"/v1/models/{MODEL}"),
                await client.get("/tokenizer_info"),
                await client.post("/v1/chat/completions", json=body),
                await client.post("/v1/chat/completions/render", json=body),
                await client.post("/v1/completions", json=body),
            ]
            told = answers[1].json()["gateway"]
            assert (told["ready"], told["reason"]) == (False, answers[3].json()["error"]["message"])
            assert [answer.status_code for answer in answers] == [200, 200, 200, 503, 503, 503]
            for answer in answers:
                assert HOST not in answer.text
                assert "secret" not in answer.text
            assert HOST in (await client.get("/health/ready")).json()["models"][MODEL]["reason"]


async def test_a_check_of_a_gateway_reads_the_reason_where_operators_do(folder: Path) -> None:
    async with gateway(folder, served=True, engine_up=False) as running:
        running.backend.leave(f"Triton at {HOST}:1 has not been reached yet")
        findings, models = await describe_gateway(str(running.client.base_url), None)
        assert [finding.what for finding in findings] == [f"Triton at {HOST}:1 has not been reached yet."]
        assert models[MODEL].reason == f"Triton at {HOST}:1 has not been reached yet"
    async with gateway(folder, served=True, engine_up=False, **KEYS) as running:
        (finding,), _ = await describe_gateway(str(running.client.base_url), "key")
        assert finding.what == "The model is currently unavailable; try again later."


LOSS = "a streamed answer is one event at the end: 'tensorrt_llm' is not decoupled"


async def test_losses_of_a_model_are_findings(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A warning where something cures it, as for a repository; in the log all of a model are one record."""
    features = dataclasses.replace(TOKENS, losses={LOSS: "Set it.", "log-probs are refused": ""})
    async with gateway(folder, served=True, features=features) as running:
        url = str(running.client.base_url)
        findings, _ = await describe_gateway(url, None)
        findings = [found for found in findings if "not compared" not in found.what]
        where = f"{url.rstrip('/')} {MODEL}"
        assert findings == [
            Finding(Severity.WARNING, where, f"{LOSS}.", "Set it."),
            Finding(Severity.INFO, where, "log-probs are refused."),
        ]
    said = [record.getMessage() for record in caplog.records if LOSS in record.getMessage()]
    assert said == [f"answers of model {MODEL} are incomplete: {LOSS} (Set it); log-probs are refused"]


async def test_a_template_that_fails_is_a_finding(tmp_path: Path) -> None:
    folder = write_tokenizer(tmp_path / "model", "{{ messages[0].rol.x }}")
    async with gateway(folder, served=True, features=TOKENS, max_seq_len=4096) as running:
        findings, _ = await describe_gateway(str(running.client.base_url), None)
    assert "Its chat template cannot render a user message." in [found.what for found in findings]


async def test_a_doubtful_family_is_a_finding(tmp_path: Path) -> None:
    folder = write_tokenizer(
        tmp_path / "model", "{{ tools }}{% for message in messages %}{{ message.content }}{% endfor %}"
    )
    async with gateway(folder, served=True, features=TOKENS, max_seq_len=4096) as running:
        url = str(running.client.base_url)
        findings, _ = await describe_gateway(url, None)
        said = (await running.client.get(f"/v1/models/{MODEL}")).json()["gateway"]
    uncompared, *findings = findings
    assert (uncompared.severity, "not compared" in uncompared.what) == (Severity.INFO, True)
    assert [(found.severity, found.where) for found in findings] == [(Severity.WARNING, f"{url.rstrip('/')} {MODEL}")]
    said_of_it = "but its chat template supports tools and its model family is unknown."
    assert findings[0].what == f"The model is treated as family plain, {said_of_it}"
    assert findings[0].fix.startswith("Set `family` if the model writes calls in a known format")
    assert (said["family"], said["family_reason"]) == ("plain", "no other family claims it")
    assert list(said["family_doubts"].values()) == [findings[0].fix]


@pytest.mark.parametrize(("key", "rejected"), [("key", 503), ("another", 401)])
async def test_what_it_refuses_is_read_and_closed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, key: str, rejected: int
) -> None:
    """Health answers 503 where a model is not ready; what is left open warns when it is freed."""
    closed = []
    close = urllib.error.HTTPError.close

    def closing(error: urllib.error.HTTPError) -> None:
        closed.append(error.code)
        close(error)

    monkeypatch.setattr(urllib.error.HTTPError, "close", closing)
    async with gateway(folder, served=True, engine_up=False, server={"api_keys": ["key"]}) as running:
        await describe_gateway(str(running.client.base_url), key)
    assert closed == [rejected]
