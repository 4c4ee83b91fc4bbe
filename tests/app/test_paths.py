"""Paths as clients write them: HEAD, a slash at the end, a base URL that is wrong; and the version."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.app.harness import USER, Gateway, gateway
from tests.app.scripted import MODEL

READ = ["/v1/models", f"/v1/models/{MODEL}", "/health", "/health/live", "/health/ready", "/metrics", "/tokenizer_info"]
READ += ["/version", "/openapi.json", "/docs"]


@pytest.mark.parametrize("path", READ)
async def test_head_is_get_without_its_body(folder: Path, path: str) -> None:
    async with gateway(folder, served=True) as running:
        got, headed = await running.client.get(path), await running.client.head(path)
        assert (headed.status_code, headed.content) == (got.status_code, b"") == (200, b"")
        assert headed.headers["content-type"] == got.headers["content-type"]
        assert headed.headers["x-request-id"]
        if path != "/metrics":  # which counts the requests
            assert headed.headers["content-length"] == got.headers["content-length"] == str(len(got.content))
        assert (await running.client.get(path)).content  # the connection is in order


@pytest.mark.parametrize("path", [path for path in READ if path not in {"/openapi.json", "/docs"}])
async def test_one_slash_more_of_what_is_read(folder: Path, path: str) -> None:
    async with gateway(folder) as running:
        got, longer = await running.client.get(path), await running.client.get(f"{path}/")
        assert longer.status_code == 200
        assert path == "/metrics" or longer.content == got.content


async def test_a_line_end_is_a_part_of_the_path(folder: Path) -> None:
    async with gateway(folder) as running:
        for path in (*READ, "", "/v1/responses/resp_1", f"/v1/models/{MODEL}/"):
            for more in ("%0a", "/%0a", "%0d%0a"):
                assert (await running.client.get(f"{path}{more}")).status_code == 404, path
        for path in ("/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/responses/resp_1/cancel"):
            assert (await running.client.post(f"{path}%0a", json={})).status_code == 404, path


@pytest.mark.parametrize("path", [f"/v1/models/{MODEL}%0a", f"/openai/v1/models/{MODEL}%0a", "/v1/models/x%0ay"])
async def test_a_line_end_in_the_name_of_a_model_is_a_part_of_it(folder: Path, path: str) -> None:
    async with gateway(folder) as running:
        rejected = (await running.client.get(path)).json()["error"]
        assert (rejected["code"], rejected["param"]) == ("model_not_found", "model")
        assert "base URL" not in rejected["message"]
        other = (await running.client.get(path, headers={"anthropic-version": "2023-06-01"})).json()
        assert (other["type"], other["error"]["type"]) == ("error", "not_found_error")


ONCE = "The base URL of an OpenAI client must end with a single '/v1'."


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/chat/completions", "/v1/chat/completions"),
        ("/completions", "/v1/completions"),
        ("/models", "/v1/models"),
        ("/models/org/name", "/v1/models/org/name"),
        ("/v1/v1/chat/completions", "/v1/chat/completions"),
        ("/v1/v1/models", "/v1/models"),
        ("/v1//chat/completions", "/v1/chat/completions"),
        ("//v1/models/", "/v1/models"),
        ("/api/v1/completions", "/v1/completions"),
        ("/azure/openai/deployments/m/chat/completions", "/v1/chat/completions"),
        ("/v1/chat/completions/chat/completions", "/v1/chat/completions"),
        ("/chat/completions/render", "/v1/chat/completions/render"),
        ("/v1/tokenize", "/tokenize"),
        ("/v1/health", "/health"),
    ],
)
async def test_a_wrong_base_url_is_explained(folder: Path, path: str, meant: str) -> None:
    async with gateway(folder) as running:
        answer = await running.client.post(f"http://localhost{path}", json={})
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (404, "unknown_url")
        hint = f" Did you mean {meant}?" + (f" {ONCE}" if meant.startswith("/v1") else "")
        assert error["message"] == f"Unknown request URL: POST {path}.{hint}"


@pytest.mark.parametrize("path", ["/v1", "/v1/", "/v1/embedding", "/v2/", "/nothing", "/v1/chat"])
async def test_what_nobody_could_mean_has_no_hint(folder: Path, path: str) -> None:
    async with gateway(folder) as running:
        message = (await running.client.post(path)).json()["error"]["message"]
        assert message == f"Unknown request URL: POST {path}."


STORED = " This gateway does not store chat completions: "
INSTEAD = " This gateway does not support this endpoint. "


UNSERVED = [
    ("/v1/batches", INSTEAD, "Send single requests"),
    ("/v1/decisions", INSTEAD, "'response_format'"),
    ("/v1/skills/skill_1/content", INSTEAD, "system message"),
    ("/v1/agents", INSTEAD, "to /v1/responses"),
    ("/v1/live/sessions", INSTEAD, "'stream' of /v1/responses"),
    ("/v1/threads/thread_1/messages", INSTEAD, "/v1/conversations"),
    ("/openai/deployments/m/images", INSTEAD, "accept and return text"),
    ("/v1/chat/completions/chatcmpl-1", STORED, "/v1/responses"),
    ("/v1/chat/completions/chatcmpl-1/messages", STORED, "/v1/responses"),
    ("/api/chat", INSTEAD, "Use /v1/chat/completions."),
    ("/api/generate", INSTEAD, "Use /v1/completions."),
    ("/api/tags", INSTEAD, "Use GET /v1/models."),
    ("/embeddings", INSTEAD, "Use /v1/embeddings."),
    ("/api/v1/embeddings", INSTEAD, "Use /v1/embeddings."),
    ("/v1/v1/files", INSTEAD, "text of files"),
    ("/v2/embed", INSTEAD, "Use /v1/embeddings."),
    ("/openai/deployments", INSTEAD, "use GET /v1/models"),
    ("/api/me", INSTEAD, "The operator"),
    ("/api/web_search", INSTEAD, "'tools'"),
]


OTHER_METHODS = {
    ("GET", "/chat/completions"),
    ("DELETE", "/models/{model}"),
}
_CALL = re.compile(r'self\._(get|post|put|patch|delete|get_api_list)\(\s*(?:path_template\(\s*)?"(/[^"?]*)')


def calls_of(sdk: str) -> set[tuple[str, str]]:
    """The methods and paths of an SDK's resources; a list is a GET unless it says otherwise."""
    spec = importlib.util.find_spec(sdk)
    assert spec is not None
    texts = [file.read_text() for file in Path(spec.origin or "").with_name("resources").rglob("*.py")]
    found = [each.groups() for text in texts for each in _CALL.finditer(text)]
    return {("GET" if method == "get_api_list" else method.upper(), path) for method, path in found}


async def test_another_method_of_the_endpoint_that_is_advised_has_no_advice(folder: Path) -> None:
    async with gateway(folder) as running:
        answer = await running.client.get("/v1/embeddings")
        assert answer.json()["error"]["message"] == "Method not allowed: GET /v1/embeddings."


async def test_a_path_of_another_api_is_named_with_what_serves_it(folder: Path) -> None:
    async with gateway(folder) as running:
        for path, begins, instead in UNSERVED:
            answer = await running.client.post(path)
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "unknown_url")
            message = answer.json()["error"]["message"]
            assert message.startswith(f"Unknown request URL: POST {path}.{begins}")
            assert instead in message
        answer = await running.client.get("/v1/chat/completions")
        assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
        assert f"{STORED}/v1/responses" in answer.json()["error"]["message"]


async def test_each_path_of_the_sdks_is_served_or_named(folder: Path) -> None:
    async with gateway(folder) as running:
        for sdk, base in (("openai", "/v1"), ("anthropic", "")):
            headers = {"anthropic-version": "2023-06-01"} if sdk == "anthropic" else {}
            calls = calls_of(sdk)
            assert len(calls) > 250  # so that the pattern still finds them
            for method, path in sorted(calls):
                answer = await running.client.request(method, f"{base}{path}", headers=headers, json={})
                unknown = f"Unknown request URL: {method} {base}{path}."
                error = answer.json().get("error") or {"message": ""}
                if error["message"].startswith(unknown):
                    assert error["message"].startswith(f"{unknown} This gateway does not s"), path
                    assert (error["type"] == "not_found_error") == (sdk == "anthropic")
                else:
                    assert answer.status_code != 405 or (method, path) in OTHER_METHODS, path


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
