"""The bytes of the pages at ``/`` and ``/docs``, that nothing else is asked or run, and who sees them and metrics."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, get_args
from urllib.parse import urljoin

import httpx
import pytest

from gateway.api.page import routes
from gateway.api.page.routes import DOCS_PATHS, PAGE_PATHS
from gateway.app import create_app
from gateway.generation.health import HealthState
from gateway.settings import Settings
from tests.app.harness import Gateway, gateway
from tests.app.harness import gateway as gateway_over
from tests.app.scripted import ScriptedBackend, settings_for

SCRIPTS = (
    "behind", "chats", "compare", "conversation", "gateway", "models", "page", "parameters", "parts", "render", "reply",
    "request", "store", "tokens",
)  # fmt: skip
FILES = {
    "/": "text/html; charset=utf-8",
    "/page/chat.css": "text/css; charset=utf-8",
    "/page/page.css": "text/css; charset=utf-8",
    "/page/icon.svg": "image/svg+xml",
    **{f"/page/{name}.js": "text/javascript; charset=utf-8" for name in SCRIPTS},
}
LINKED = {"/page/icon.svg", "/page/page.css", "/page/chat.css", "/page/page.js"}
MOST_BYTES = 100_000
KEYS = {"api_keys": ["key"]}


class Tags(HTMLParser):
    """The tags of a page with their attributes, and the texts of its scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.inline: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] in {"script", "style"} and data.strip():
            self.inline.append(data)


async def test_every_file_is_read_with_its_type_its_policy_and_its_tag(folder: Path) -> None:
    assert set(FILES) == {path or "/" for path in PAGE_PATHS}
    async with gateway_over(folder, served=True) as running:
        for path, content_type in FILES.items():
            answer, headed = await running.client.get(path), await running.client.head(path)
            assert (answer.status_code, answer.headers["content-type"]) == (200, content_type)
            policy = dict(part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; "))
            assert (policy.pop("default-src"), policy["script-src"], policy["style-src"]) == ("'none'", *["'self'"] * 2)
            allowed = set(" ".join(policy.values()).split())
            assert allowed == {"'self'", "'none'", "'script'"}  # no unsafe-inline, no other host
            assert policy["frame-ancestors"] == "'none'"
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert (headed.status_code, headed.content) == (200, b"")
            assert headed.headers["content-length"] == str(len(answer.content))
            assert answer.headers["cache-control"] == "no-cache"
            etag = answer.headers["etag"]
            for given in (etag, f"W/{etag}", f'"other", {etag}'):
                again = await running.client.get(path, headers={"if-none-match": given})
                assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)
            assert (await running.client.get(path, headers={"if-none-match": '"other"'})).content == answer.content
            posted = await running.client.post(path, json={})
            assert (posted.status_code, posted.headers["allow"]) == (405, "GET, HEAD")


async def test_it_is_small(folder: Path) -> None:
    async with gateway_over(folder) as running:
        sizes = [len((await running.client.get(path)).content) for path in FILES]
    assert min(sizes) > 100
    assert sum(sizes) <= MOST_BYTES
    kept = (Path(routes.__file__).parent / "chat").iterdir()
    assert sum(file.stat().st_size for file in kept) == sum(sizes)  # every file of the folder is one of the page


async def test_it_asks_nobody_but_this_gateway_wherever_a_proxy_puts_it(folder: Path) -> None:
    async with gateway_over(folder) as running:
        texts = {path: (await running.client.get(path)).text for path in FILES}
    page = Tags(texts["/"])
    linked = [attrs.get("src") or attrs.get("href") for _, attrs in page.tags]
    files = {link for link in linked if link and not link.startswith("#")}
    assert {urljoin("/behind/a/proxy/", link) for link in files} == {
        f"/behind/a/proxy{path}" for path in LINKED | {"/docs"}
    }
    assert page.inline == []
    assert [attrs for _, attrs in page.tags if any(name == "style" or name.startswith("on") for name in attrs)] == []
    scripts = "".join(text for path, text in texts.items() if path.endswith(".js"))
    assert set(re.findall(r'(?:from|import) "([^"]+)"', scripts)) == {
        f"./{name}.js" for name in SCRIPTS if name != "page"
    }
    asked = re.findall(r'(?:ask|fetch)\([`"]([^`"?$]+)', scripts)
    assert set(asked) == {
        "docs",
        "v1/models",
        "v1/models/",
        "tokenizer_info",
        "v1/chat/completions",
        "v1/chat/completions/render",
        "v1/embeddings",
    }
    for path, text in texts.items():
        assert re.findall(r"(?:https?:)?//[a-z0-9]|@import|url\(|(?:inner|outer)HTML|document\.write|eval\(", text) == (
            ["http://w"] if path.endswith(".svg") else []  # the name of SVG's elements
        )


def test_it_has_words_for_each_state_of_a_model() -> None:
    script = (Path(routes.__file__).parent / "chat" / "models.js").read_text()
    words = script[script.index("STATES = {") : script.index("const TASKS")]
    assert set(re.findall(r'^  (\w+): "', words, re.MULTILINE)) == set(get_args(HealthState)) - {"ready"}


@pytest.mark.parametrize(
    ("server", "status"),
    [
        ({}, 200),
        ({"page": True}, 200),
        ({"page": False}, 404),
        ({"internal_port": 9999}, 404),
        ({"internal_port": 9999, "page": True}, 200),
    ],
)
async def test_it_is_shown_as_set(folder: Path, server: dict[str, Any], status: int) -> None:
    async with gateway_over(folder, server=server) as running:
        for path in FILES:
            assert (await running.client.get(path)).status_code == status


async def test_the_internal_port_never_has_it(folder: Path) -> None:
    app = create_app(
        settings_for(folder, server={"internal_port": 9999, "page": True}), lambda _: ScriptedBackend(None)
    )
    transport = httpx.ASGITransport(app=app.state.internal)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        assert (await client.get("/health/live")).status_code == 200
        assert [(await client.get(path)).status_code for path in FILES] == [404] * len(FILES)


async def test_the_page_needs_no_key_and_opens_nothing_else(folder: Path) -> None:
    async with gateway_over(folder, server=KEYS) as running:
        assert [(await running.client.get(path)).status_code for path in FILES] == [200] * len(FILES)
        for path in ("/v1/models", "/page", "/page/", "/page/other.js", "/page/../v1/models", "//"):
            assert (await running.client.get(f"http://localhost{path}")).status_code == 401
    async with gateway_over(folder, server=KEYS | {"page": False}) as running:
        assert [(await running.client.get(path)).status_code for path in FILES] == [401] * len(FILES)


async def test_other_names_and_pages_get_it_as_little_as_anything_else(folder: Path) -> None:
    async with gateway_over(folder) as running:
        assert (await running.client.get("/", headers={"host": "page.example"})).status_code == 403
        answer = await running.client.get("/", headers={"origin": "https://page.example"})
        assert "access-control-allow-origin" not in answer.headers
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"


async def test_it_is_counted_by_its_paths_and_no_part_of_the_document(folder: Path) -> None:
    async with gateway_over(folder) as running:
        for path in FILES:
            await running.client.get(path)
        page = (await running.client.get("/metrics")).text
        assert set(re.findall(r'gateway_requests_total\{endpoint="([^"]+)"', page)) == set(FILES)
        assert not set((await running.client.get("/openapi.json")).json()["paths"]) & set(FILES)


DOCS = sorted(DOCS_PATHS - {"/openapi.json"})


async def test_the_docs_are_small_and_run_only_what_the_gateway_serves(folder: Path) -> None:
    async with gateway_over(folder, served=True, server={"page": False}) as running:
        answers = {path: await running.client.get(path) for path in DOCS}
    assert [answer.status_code for answer in answers.values()] == [200] * len(DOCS)
    assert sum(len(answer.content) for answer in answers.values()) < 40_000
    for answer in answers.values():
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "//" not in policy
    page = Tags(answers["/docs"].text)
    linked = [attrs.get("src") or attrs.get("href") for _, attrs in page.tags]
    known = {f"/behind/a/proxy{path}" for path in (*DOCS, "/openapi.json", "/")}  # the last is the chat page
    assert {urljoin("/behind/a/proxy/docs", link) for link in linked if link} <= known
    assert page.inline == []
    assert set(re.findall(r'from "([^"]+)"', answers["/docs/docs.js"].text)) == {"./parts.js", "./request.js"}
    for path in ("/docs/docs.js", "/docs/parts.js", "/docs/request.js"):
        text = answers[path].text
        assert re.findall(r"(?:https?:)?//[a-z0-9]|@import|innerHTML|document\.write|eval\(", text) == []


async def test_each_operation_that_takes_a_body_shows_one(folder: Path) -> None:
    async with gateway_over(folder) as running:
        paths = (await running.client.get("/openapi.json")).json()["paths"]
    bodies = {path: methods["post"].get("requestBody") for path, methods in paths.items() if "post" in methods}
    shown = {path: body["content"]["application/json"].get("examples") for path, body in bodies.items() if body}
    assert len(shown) > 10
    assert [path for path, examples in shown.items() if not examples] == []


KEY = {"Authorization": "Bearer key"}


@pytest.mark.parametrize(
    ("server", "without", "with_key"),
    [
        ({}, "all", "all"),
        ({"metrics": "slim"}, "slim", "slim"),
        ({"metrics": "key"}, "slim", "all"),
        ({"metrics": "none"}, None, None),
        ({"internal_port": 9999}, "slim", "slim"),
        ({"internal_port": 9999, "metrics": "all"}, "all", "all"),
    ],
)
async def test_metrics_are_shown_as_set(
    folder: Path, server: dict[str, Any], without: str | None, with_key: str | None
) -> None:
    async with gateway(folder, server={**KEYS, **server}) as one:
        for headers, shown in (({}, without), (KEY, with_key)):
            answer = await metrics(one, headers)
            if shown is None:
                assert answer.status_code == 404
                continue
            assert answer.status_code == 200
            assert "gateway_model_ready{" in answer.text
            assert "\ngateway_num_requests_waiting 0.0\n" in answer.text
            assert ("gateway_requests_total" in answer.text) == (shown == "all")
        if server.get("metrics") == "key":
            assert (await metrics(one, {"x-api-key": "wrong"})).status_code == 401


async def metrics(gateway: Gateway, headers: dict[str, str]) -> httpx.Response:
    """The page, not held against the document, which knows nothing of settings."""
    request = gateway.client.build_request("GET", "/metrics", headers=headers)
    answer = await gateway.client.send(request, stream=True)
    await answer.aread()
    return answer


@pytest.mark.parametrize(
    ("server", "without", "with_key"),
    [({}, 200, 200), ({"docs": "key"}, 401, 200), ({"docs": "none"}, 404, 404), ({"internal_port": 9999}, 404, 404)],
)
async def test_documentation_is_shown_as_set(folder: Path, server: dict[str, Any], without: int, with_key: int) -> None:
    async with gateway(folder, server={**KEYS, **server}) as one:
        for path in DOCS_PATHS:
            static = path != "/openapi.json" and without == 401  # it says nothing of the gateway, and asks for the key
            assert (await one.client.get(path)).status_code == (200 if static else without)
            assert (await one.client.get(path, headers=KEY)).status_code == with_key


@pytest.mark.parametrize(
    ("server", "says"),
    [
        ({"metrics": "key"}, "server.metrics: key requires server.api_keys"),
        ({"docs": "key"}, "server.docs: key requires server.api_keys"),
    ],
)
def test_settings_that_contradict_themselves_are_refused(server: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Settings.model_validate({"server": server, "models": [{"name": "m", "triton": {"url": "h:1"}}]})
