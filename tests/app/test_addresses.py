"""Internal addresses: operators read them in the log and in health, clients nowhere."""

from __future__ import annotations

import logging
from pathlib import Path

import httpx
import pytest

from gateway.app import create_app
from gateway_ops.check.endpoint import describe_gateway
from tests.app.documented import DocumentedClient
from tests.app.harness import USER, gateway
from tests.app.scripted import MODEL, settings_for, write_tokenizer

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
