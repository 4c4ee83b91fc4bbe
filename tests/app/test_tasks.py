"""Models of another task than that of the endpoint at which they are asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.app.encoders import encoders
from tests.app.harness import USER

QUERY = {"query": "a", "documents": ["b"]}
REQUESTS: dict[str, tuple[str, dict[str, Any], str]] = {
    "/v1/chat/completions": ("vectors", {"messages": USER}, "'words'"),
    "/v1/completions": ("ranks", {"prompt": "Hi"}, "'words'"),
    "/v1/responses": ("classes", {"input": "Hi"}, "'words'"),
    "/v1/messages": ("vectors", {"messages": USER, "max_tokens": 1}, "'words'"),
    "/v1/chat/completions/render": ("vectors", {"messages": USER}, "'words'"),
    "/v1/embeddings": ("words", {"input": "a"}, "'vectors', "),
    "/v1/rerank": ("vectors", QUERY, "'ranks', "),
    "/v2/rerank": ("words", QUERY, "'ranks', "),
    "/v1/score": ("classes", {"text_1": "a", "text_2": "b"}, "'ranks', "),
    "/classify": ("ranks", {"input": "a"}, "'classes', "),
    "/pooling": ("ranks", {"input": "a"}, "'classes', "),
}


async def test_a_model_of_another_task_is_rejected_with_the_models_that_can(folder: Path) -> None:
    async with encoders(folder) as running:
        for path, (model, body, able) in REQUESTS.items():
            answer = await running.client.post(path, json={"model": model, **body})
            assert answer.status_code == 400, path
            error = answer.json()["error"]
            assert f"The task of the model '{model}' is " in error["message"]
            assert able in error["message"].partition("Models for it: ")[2]
            if path != "/v1/messages":  # Anthropic's form has neither
                assert (error["param"], error["code"]) == ("model", "unsupported_task")


async def test_the_task_is_described_logged_and_counted(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with encoders(folder) as running:
        caplog.set_level("INFO", "gateway.access")
        assert (await running.client.get("/v1/models/words")).json()["gateway"]["task"] == "generate"
        assert 'gateway_model_task{model="vectors",task="embed"} 1.0' in (await running.client.get("/metrics")).text
        await running.post("/v1/completions", model="words", prompt="Hi")
        assert caplog.records[-1].__dict__["task"] == "generate"
        await running.post("/v1/embeddings", model="vectors", input="Hi")
        assert caplog.records[-1].__dict__["task"] == "embed"
