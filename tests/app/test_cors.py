"""Web pages of other origins, as browsers ask for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.settings import ConfigError, load_settings
from tests.app.harness import Gateway, gateway

PAGE = "https://app.example"
OTHER = "https://other.example"
SERVER = {"cors": {"origins": [PAGE, "http://localhost:3000"]}, "api_keys": ["key"]}
ASKED = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,x-stainless-os"}


def allowed(answer: httpx.Response) -> str | None:
    value: str | None = answer.headers.get("access-control-allow-origin")
    return value


async def ask(running: Gateway, origin: str = PAGE, key: str = "key", **body: Any) -> httpx.Response:
    running.client.headers.update({"Origin": origin, "Authorization": f"Bearer {key}"})
    return await running.chat(**body)


async def test_a_preflight_of_another_page_is_refused(folder: Path) -> None:
    async with gateway(folder, server=SERVER) as running:
        for origin in (OTHER, "null", "https://app.example.evil", "http://app.example", "https://app.example:8443"):
            answer = await running.client.options("/v1/models", headers={"Origin": origin, **ASKED})
            assert (answer.status_code, allowed(answer)) == (400, None)
        method = {"Origin": PAGE, "Access-Control-Request-Method": "PUT"}
        assert (await running.client.options("/v1/models", headers=method)).status_code == 400


async def test_a_page_may_read_answers_streams_and_errors(folder: Path) -> None:
    limits = {"max_body_bytes": 2048}
    async with gateway(folder, served=True, server=SERVER, limits=limits) as running:
        whole = await ask(running, colour="red")
        streamed = await ask(running, stream=True)
        wrong = await ask(running, temperature=9)
        large = await ask(running, user="x" * 4096)
        lost = await running.client.get("/nothing")
        method = await running.client.delete("/v1/models")
        keyless = await ask(running, key="wrong")
        answers = [whole, streamed, wrong, large, lost, method, keyless]
        assert [answer.status_code for answer in answers] == [200, 200, 400, 413, 404, 405, 401]
        assert [allowed(answer) for answer in answers] == [PAGE] * 7
        assert streamed.text.endswith("data: [DONE]\n\n")
        assert streamed.text.count('"content":') == 6  # the role, and five tokens past the layers of the application
        exposed = set(whole.headers["access-control-expose-headers"].split(", "))
        assert exposed >= {"x-request-id", "x-ignored-parameters", "Retry-After"}
        assert whole.headers["x-ignored-parameters"] == "colour"


async def test_a_page_may_read_that_the_gateway_has_a_defect(folder: Path) -> None:
    async with gateway(folder, served=True, server=SERVER | {"api_keys": []}) as running:
        running.backend.leave(object())  # type: ignore[arg-type] - what no JSON can be made of
        answer = await running.client.get("/health/ready", headers={"Origin": PAGE})
        assert (answer.status_code, allowed(answer)) == (500, PAGE)
        assert answer.json()["error"]["type"] == "server_error"
        assert answer.headers["x-request-id"] in answer.json()["error"]["message"]
        assert len(answer.headers.get_list("x-request-id")) == 1
        assert "object" not in answer.text


async def test_every_page(folder: Path) -> None:
    async with gateway(folder, server={"cors": {"origins": ["*"]}}) as running:
        assert allowed(await ask(running, OTHER)) == "*"
        assert allowed(await running.client.options("/v1/models", headers={"Origin": OTHER, **ASKED})) == "*"


def origins(text: str) -> tuple[str, ...]:
    environment = {"GATEWAY_MODEL": "m", "GATEWAY_TRITON_URL": "x:1", "GATEWAY_CORS_ORIGINS": text}
    return load_settings(environment=environment).server.cors.origins


def test_origins_are_kept_as_browsers_write_them() -> None:
    assert origins("HTTPS://App.Example:443, http://localhost:3000,http://[::1]:80") == (
        "https://app.example",
        "http://localhost:3000",
        "http://[::1]",
    )
    assert origins("app://obsidian.md,*") == ("app://obsidian.md", "*")


@pytest.mark.parametrize(
    "text", ["https://app.example/", "app.example", "null", "https://*.example", "https://ä.example"]
)
def test_what_no_browser_sends_is_no_origin(text: str) -> None:
    with pytest.raises(ConfigError, match=r"server\.cors\.origins.*GATEWAY_CORS_ORIGINS.*must be an origin"):
        origins(text)
