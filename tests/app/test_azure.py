"""Azure's paths and its header ``api-key``: what OpenAI's client for Azure sees."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import openai
import pytest

from tests.app.harness import USER, Gateway, gateway
from tests.app.scripted import MODEL

KEY = "sk-azure"
API = {"api_version": "2025-04-01-preview", "max_retries": 0, "timeout": 20}


def azure(running: Gateway, **options: Any) -> openai.AsyncAzureOpenAI:
    return openai.AsyncAzureOpenAI(**{"azure_endpoint": str(running.client.base_url), "api_key": KEY, **API, **options})


async def test_azures_client_reaches_every_endpoint_of_text(folder: Path) -> None:
    async with gateway(folder, served=True, server={"api_keys": [KEY]}) as running, azure(running) as client:
        chat = await client.chat.completions.create(model=MODEL, messages=USER, max_tokens=3)
        assert chat.choices[0].message.content == "Hel"
        stream = await client.completions.create(model=MODEL, prompt="Hi", stream=True, max_tokens=3)
        assert "".join([chunk.choices[0].text async for chunk in stream]) == "Hel"
        assert (await client.responses.create(model=MODEL, input="Hi", max_output_tokens=16)).output_text == "Hello"
        assert [model.id async for model in client.models.list()] == [MODEL]
        assert (await client.models.retrieve(MODEL)).id == MODEL
    async with gateway(folder, served=True, server={"api_keys": [KEY]}) as running:
        url = f"{running.client.base_url}/openai/v1"
        headers = {"api-key": KEY}
        async with openai.AsyncOpenAI(base_url=url, api_key="unused", default_headers=headers, max_retries=0) as client:
            assert (await client.chat.completions.create(model=MODEL, messages=USER)).choices[0].finish_reason == "stop"
        async with azure(running, api_key="sk-other") as client:
            with pytest.raises(openai.AuthenticationError, match="Incorrect API key"):
                await client.models.list()


async def test_the_deployment_of_the_path_is_the_model(folder: Path) -> None:
    async with gateway(folder, served=True) as running, azure(running, azure_deployment=MODEL) as client:
        other = await client.chat.completions.with_raw_response.create(model="gpt-4", messages=USER)
        assert (other.parse().model, other.headers["x-ignored-parameters"]) == (MODEL, "model")
        path = f"/openai/deployments/{MODEL}/chat/completions"
        silent = await running.client.post(path, params={"api-version": "1"}, json={"messages": USER})
        assert (silent.status_code, silent.json()["model"]) == (200, MODEL)
        assert "x-ignored-parameters" not in silent.headers
        metrics = (await running.client.get("/metrics")).text
        assert 'endpoint="/v1/chat/completions"' in metrics
        assert "/openai/" not in metrics
        same = await client.chat.completions.with_raw_response.create(model=MODEL, messages=USER)
        assert "x-ignored-parameters" not in same.headers


async def test_a_deployment_may_have_a_slash_and_an_unknown_one_is_named(folder: Path) -> None:
    async with gateway(folder, served=True, aliases=["org/name"]) as running, azure(running) as client:
        assert (await client.chat.completions.create(model="org/name", messages=USER)).model
        with pytest.raises(openai.NotFoundError, match="The model 'gpt-4' does not exist"):
            await client.chat.completions.create(model="gpt-4", messages=USER)
        with pytest.raises(openai.BadRequestError, match=f"The task of the model '{MODEL}' is generate"):
            await client.embeddings.create(model=MODEL, input="Hi")
        with pytest.raises(openai.NotFoundError, match=f"POST /openai/deployments/{MODEL}/images"):
            await client.images.generate(model=MODEL, prompt="Hi")
        path = "/openai/deployments/other%0a/chat/completions"
        unknown = await running.client.post(path, json={"messages": USER})
        assert unknown.json()["error"]["code"] == "model_not_found"


@pytest.mark.parametrize("prefix", ["", "/v1", "/openai", "/openai/v1", "/anthropic/v1", "/v1/v1"])
async def test_errors_of_anthropics_paths_have_its_form_under_any_prefix(folder: Path, prefix: str) -> None:
    async with gateway(folder, server={"api_keys": [KEY]}) as running:
        for path in (f"{prefix}/messages", f"{prefix}/messages/count_tokens"):
            for headers in ({}, {"api-key": KEY}):
                error = (await running.client.post(path, json={}, headers=headers)).json()
                assert (error["type"], bool(error["request_id"])) == ("error", True)
                named = "'Authorization: Bearer KEY', 'x-api-key: KEY' or 'api-key: KEY'" in error["error"]["message"]
                assert named is not bool(headers)
        thread = await running.client.post("/v1/threads/thread_1/messages", json={})
        assert thread.json()["error"]["code"] == "invalid_api_key"
