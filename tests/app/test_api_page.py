"""The bytes of the page at ``/docs``, and that nothing else is asked or run."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urljoin

from gateway.api.page.routes import DOCS_PATHS
from tests.app.harness import gateway as gateway_over
from tests.app.test_chat_page import Tags

FILES = sorted(DOCS_PATHS - {"/openapi.json"})
MOST_BYTES = 40_000


async def test_it_is_small_and_runs_only_what_the_gateway_serves(folder: Path) -> None:
    async with gateway_over(folder, served=True, server={"page": False}) as running:
        answers = {path: await running.client.get(path) for path in FILES}
    assert [answer.status_code for answer in answers.values()] == [200] * len(FILES)
    assert sum(len(answer.content) for answer in answers.values()) < MOST_BYTES
    for answer in answers.values():
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "//" not in policy
    page = Tags(answers["/docs"].text)
    linked = [attrs.get("src") or attrs.get("href") for _, attrs in page.tags]
    known = {f"/behind/a/proxy{path}" for path in (*FILES, "/openapi.json", "/")}  # the last is the chat page
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
