"""A model that cannot be served as it is deployed: clients are told not to try again, operators are told why."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.app import create_app
from tests.app.harness import USER
from tests.app.scripted import MODEL, settings_for
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
TOKENS = [("/tokenize", {"prompt": "Hi"}), ("/detokenize", {"tokens": [1]})]
REASON = "model 'tensorrt_llm' requires inputs that the gateway does not send: image"


def with_a_required_image() -> dict[str, Any]:
    configs = stock_configs()
    configs["tensorrt_llm"].input.add(name="image")
    return configs


@contextlib.asynccontextmanager
async def gateway(triton: str, folder: Path | None) -> AsyncIterator[httpx.AsyncClient]:
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
    requests = GENERATING if tokenizer == "configured" else GENERATING + TOKENS
    async with (
        ScriptedTriton(configs=with_a_required_image()) as triton,
        gateway(triton.url, folder if tokenizer == "configured" else None) as client,
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
    async with ScriptedTriton(configs=with_a_required_image()) as triton, gateway(triton.url, folder) as client:
        await until_ready(client, 503, REASON)
        triton.configs.update(stock_configs())
        await until_ready(client, 200)
        assert (await client.post("/v1/completions", json=COMPLETION)).status_code == 200


async def test_what_passes_by_itself_may_be_tried_again(folder: Path) -> None:
    async with ScriptedTriton(configs=with_a_required_image()) as triton, gateway(triton.url, folder) as client:
        await until_ready(client, 503, REASON)
        await triton.stop()
        await until_ready(client, 503, "unreachable")
        answer = await client.post("/v1/chat/completions", json=CHAT)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert answer.json()["error"]["code"] == "service_unavailable"
