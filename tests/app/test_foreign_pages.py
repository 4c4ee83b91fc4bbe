"""Web pages of other sites and origins: what a browser may send for them, and what they may read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.http.middleware import is_loopback
from gateway.settings import ConfigError, Settings, load_settings
from tests.app.harness import USER, Gateway, gateway
from tests.app.scripted import MODEL

CHAT = "/v1/chat/completions"
BODY = json.dumps({"model": MODEL, "messages": USER}).encode()
REBOUND = "page.example:9000"


@pytest.mark.parametrize("path", [CHAT, "/v1/completions", "/tokenize", "/detokenize", f"{CHAT}/render"])
@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://page.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"origin": "https://page.example", "content-type": ""},
        {"origin": "https://page.example", "content-type": ";x"},
        {"sec-fetch-site": "same-site"},  # a page of another port of this machine, or of a sibling domain
        {"sec-fetch-site": "same-site", "content-type": " ; charset=utf-8"},
        {"origin": "https://page.example", "content-type": "text/plain"},
        {"origin": "https://page.example", "content-type": "text/plain; application/json"},
        {"origin": "https://page.example", "content-type": "application/x-www-form-urlencoded"},
        {"origin": "https://page.example", "content-type": "multipart/form-data; boundary=application/json"},
    ],
)
async def test_what_a_page_sends_without_asking_is_refused(folder: Path, path: str, headers: dict[str, str]) -> None:
    async with gateway(folder) as running:
        answer = await running.client.post(path, content=BODY, headers=headers)
        assert answer.status_code == 415
        assert answer.json()["error"]["code"] == "unsupported_content_type"
        assert running.engine.requests == []


@pytest.mark.parametrize(
    "headers",
    [
        {},  # curl --data-binary with an empty content type, and many scripts
        {"sec-fetch-site": "none"},
        {"sec-fetch-site": "same-origin"},
        {"origin": "https://page.example", "content-type": "application/json"},  # only after asking (CORS)
        {"sec-fetch-site": "cross-site", "content-type": "application/json"},
    ],
)
async def test_what_no_page_sends_without_asking_is_served(folder: Path, headers: dict[str, str]) -> None:
    async with gateway(folder) as running:
        assert (await running.client.post(CHAT, content=BODY, headers=headers)).status_code == 200


@pytest.mark.parametrize(
    ("name", "values", "code"),
    [
        ("content-type", ["application/json", "text/plain"], "unsupported_content_type"),
        ("content-type", ["text/plain", "application/json"], "unsupported_content_type"),
        ("content-type", ["", "application/json"], "unsupported_content_type"),
        ("content-type", ["application/json", "application/json"], None),
        ("content-encoding", ["identity", "gzip"], "unsupported_content_encoding"),
        ("content-encoding", ["gzip", "identity"], "unsupported_content_encoding"),
    ],
)
async def test_each_of_two_headers_counts(folder: Path, name: str, values: list[str], code: str | None) -> None:
    async with gateway(folder) as running:
        answer = await running.client.post(CHAT, content=BODY, headers=[(name, value) for value in values])
        assert answer.status_code == (415 if code else 200)
        if code:
            assert answer.json()["error"]["code"] == code


NAMES = ("localhost", "LocalHost:9000", "localhost.", "app.localhost:9000", "host.docker.internal:9000", "")
ADDRESSES = ("127.0.0.1:9000", "127.9.9.9", "[::1]:9000", "192.168.0.7:9000")


async def test_own_names_and_addresses_are_answered(folder: Path) -> None:
    async with gateway(folder) as running:
        for host in (*NAMES, *ADDRESSES):
            assert (await running.client.get("/v1/models", headers={"host": host})).status_code == 200, host


@pytest.mark.parametrize("host", [REBOUND, "localhost.page.example", "xlocalhost", "127.0.0.1.page.example", "[page]"])
@pytest.mark.parametrize("path", ["/v1/models", CHAT, "/health/ready", "/metrics", "/docs", "/none"])
async def test_a_name_that_may_be_anybodys_is_refused(folder: Path, path: str, host: str) -> None:
    async with gateway(folder) as running:
        method = "POST" if path == CHAT else "GET"
        answer = await running.client.request(method, path, content=BODY, headers={"host": host})
        assert answer.status_code == 403
        error: dict[str, Any] = answer.json()["error"]
        assert (error["type"], error["code"]) == ("invalid_request_error", "host_not_allowed")
        assert "server.allowed_hosts" in error["message"]
        assert answer.headers["x-request-id"]
        assert running.engine.requests == []


@pytest.mark.parametrize(
    ("server", "host", "status"),
    [
        ({"host": "0.0.0.0"}, REBOUND, 200),
        ({"host": ""}, REBOUND, 200),
        ({"host": "::"}, REBOUND, 200),
        ({"host": "localhost"}, REBOUND, 403),
        ({"host": "::1"}, REBOUND, 403),
        ({"host": "127.0.0.5"}, REBOUND, 403),
        ({"allowed_hosts": ["page.example"]}, REBOUND, 200),
        ({"allowed_hosts": "PAGE.example, other.example"}, REBOUND, 200),
        ({"allowed_hosts": ["page.example"]}, "sub.page.example", 403),
        ({"allowed_hosts": ["page.example"]}, "localhost", 200),
        ({"allowed_hosts": ["*.page.example"]}, "sub.page.example", 200),
        ({"allowed_hosts": ["*.page.example"]}, "page.example", 403),
        ({"allowed_hosts": ["*"]}, REBOUND, 200),
        ({"host": "0.0.0.0", "allowed_hosts": ["page.example"]}, "other.example", 403),
        ({"api_keys": ["k"]}, REBOUND, 200),
        ({"api_keys": ["k"], "allowed_hosts": ["other.example"]}, REBOUND, 403),
    ],
)
async def test_where_names_are_looked_at_is_the_operators_choice(
    folder: Path, server: dict[str, Any], host: str, status: int
) -> None:
    async with gateway(folder, server=server) as running:
        answer = await running.client.get("/v1/models", headers={"host": host, "authorization": "Bearer k"})
        assert answer.status_code == status


@pytest.mark.parametrize(
    "name", ["https://page.example", "page.example:9000", "page.example/v1", "a b", "", "*.", "a.*"]
)
def test_what_is_no_name_is_refused_in_the_settings(name: str) -> None:
    models = [{"name": "m", "triton": {"url": "127.0.0.1:1"}}]
    with pytest.raises(ValueError, match="must be a host name"):
        Settings.model_validate({"server": {"allowed_hosts": [name]}, "models": models})


def test_loopback_is_what_only_this_machine_reaches() -> None:
    assert is_loopback("localhost")
    assert not is_loopback("192.0.2.1")
    assert not is_loopback("a" * 70)  # cannot be a name


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
