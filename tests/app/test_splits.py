"""Several models of one gateway: a name that they share by weight, and tasks that are not the endpoint's."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.app import create_app
from gateway.settings import ConfigError, Settings, load_settings
from tests.app.documented import DocumentedClient
from tests.app.encoders import encoders
from tests.app.harness import USER, says
from tests.app.scripted import ScriptedBackend, ScriptedEngine, settings_for


@contextlib.asynccontextmanager
async def split(folder: Path, weights: dict[str, float]) -> AsyncIterator[tuple[DocumentedClient, dict[str, Any]]]:
    """A gateway whose models ``stable`` and ``canary`` share the name ``chat``."""
    one = settings_for(folder).models[0].model_dump()
    models = [{**one, "name": name} for name in ("stable", "canary")]
    backends = {model["name"]: ScriptedBackend(ScriptedEngine(says(folder, "Hi"))) for model in models}
    settings = Settings.model_validate({"models": models, "splits": {"chat": weights}})
    app = create_app(settings, backend_factory=lambda model: backends[model.name])
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        async with DocumentedClient(False, base_url="http://localhost", transport=transport) as client:
            yield client, backends


async def answers(client: DocumentedClient, count: int, **body: Any) -> Counter[str]:
    """By model how many of the answers to requests for the split it gave."""
    counted: Counter[str] = Counter()
    for index in range(count):
        more = {key: value.format(index) for key, value in body.items()}
        asked = {"model": "chat", "messages": USER, "max_tokens": 1, **more}
        answer = await client.post("/v1/chat/completions", json=asked)
        assert answer.status_code == 200, answer.text
        counted[answer.json()["model"]] += 1
    return counted


async def test_requests_are_shared_by_weight(folder: Path) -> None:
    async with split(folder, {"stable": 3, "canary": 1}) as (client, _):
        shared = await answers(client, 200, prompt_cache_key="conversation {}")
        assert 120 <= shared["stable"] <= 180
        assert set(shared) == {"stable", "canary"}


async def test_a_conversation_stays_with_its_model(folder: Path) -> None:
    async with split(folder, {"stable": 1, "canary": 1}) as (client, _):
        for name in ("one", "two", "three", "four"):
            assert len(await answers(client, 5, prompt_cache_key=name)) == 1


async def test_a_model_that_is_away_has_no_share(folder: Path) -> None:
    async with split(folder, {"stable": 1, "canary": 1}) as (client, backends):
        backends["canary"].leave("gone")
        assert await answers(client, 20) == {"stable": 20}
        backends["stable"].leave("gone")
        answer = await client.post("/v1/chat/completions", json={"model": "chat", "messages": USER})
        assert answer.status_code == 503


async def test_a_split_is_listed_and_described(folder: Path) -> None:
    async with split(folder, {"stable": 1, "canary": 9}) as (client, _):
        listed = (await client.get("/v1/models")).json()["data"]
        assert [model["id"] for model in listed] == ["stable", "canary", "chat"]
        described = (await client.get("/v1/models/chat")).json()["gateway"]
        assert (described["model"], described["split"]) == ("canary", {"stable": 1, "canary": 9})


@pytest.mark.parametrize(
    ("split", "problem"),
    [
        ("stable: {stable: 1}", "splits.stable: a model has this name"),
        ("chat: {stable: 1, other: 1}", "splits.chat: 'other' must be the name of a configured model"),
        ("chat: {stable: 0}", "splits.chat: each weight must be at least 0, and at least one weight above 0"),
        ("chat: {stable: -1}", "splits.chat: each weight must be at least 0, and at least one weight above 0"),
    ],
)
def test_a_split_that_leads_nowhere_is_refused(tmp_path: Path, split: str, problem: str) -> None:
    file = tmp_path / "gateway.yaml"
    file.write_text(f"models: [{{name: stable, triton: {{url: 'triton:8001'}}}}]\nsplits: {{{split}}}\n")
    with pytest.raises(ConfigError, match=problem):
        load_settings(file, environment={})


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
