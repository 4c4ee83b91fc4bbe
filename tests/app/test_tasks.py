"""Models of another task than that of the endpoint at which they are asked."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from fastapi import FastAPI

from gateway.app import create_app
from gateway.settings import Settings
from tests.app.documented import DocumentedClient
from tests.app.harness import USER, says
from tests.app.scripted import TOKENS, ScriptedBackend, ScriptedEngine, settings_for

REQUESTS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": USER},
    "/v1/completions": {"prompt": "Hi"},
    "/v1/responses": {"input": "Hi"},
    "/v1/messages": {"messages": USER, "max_tokens": 1},
}


def _client(app: FastAPI) -> DocumentedClient:
    return DocumentedClient(False, base_url="http://localhost", transport=httpx.ASGITransport(app=app))


@pytest.mark.parametrize("path", REQUESTS)
async def test_a_model_of_another_task_is_rejected_with_the_models_that_can(
    folder: Path, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    vectors = dataclasses.replace(TOKENS, task=cast("Any", "embed"))
    backends = {
        "words": ScriptedBackend(ScriptedEngine(says(folder, "Hi"))),
        "vectors": ScriptedBackend(ScriptedEngine(says(folder, "Hi"), features=vectors)),
    }
    one = settings_for(folder).models[0].model_dump()
    settings = Settings.model_validate({"models": [{**one, "name": name, "aliases": []} for name in backends]})
    app = create_app(settings, backend_factory=lambda model: backends[model.name])
    async with app.router.lifespan_context(app), _client(app) as client:
        caplog.set_level("INFO", "gateway.access")
        answer = await client.post(path, json={"model": "vectors", **REQUESTS[path]})
        assert answer.status_code == 400
        error = answer.json()["error"]
        assert "The task of the model 'vectors' is embed" in error["message"]
        assert "Models for generate: 'words'." in error["message"]
        if path != "/v1/messages":  # Anthropic's form has neither
            assert (error["param"], error["code"]) == ("model", "unsupported_task")
        described = (await client.get("/v1/models/words")).json()["gateway"]
        assert described["task"] == "generate"
        assert 'gateway_model_task{model="vectors",task="embed"} 1.0' in (await client.get("/metrics")).text
        assert (await client.post("/v1/completions", json={"model": "words", "prompt": "Hi"})).status_code == 200
        assert caplog.records[-1].__dict__["task"] == "generate"
