"""The slim page: written when a number has changed, and answered before routes and middleware."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.types import Message, Scope

from gateway.generation.health import READY, EngineCondition
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.slim_page import EngineLoad, Engines, ModelQueue, SlimPage
from gateway.web.scrapes import ScrapesMiddleware
from tests.app.harness import Gateway, gateway
from tests.app.scripted import write_tokenizer

SLIM = {"api_keys": ["key"], "internal_port": 9999}


class Pod:
    """A gateway's numbers, as a test has them."""

    def __init__(self) -> None:
        self.now = 100.0
        self.asked = 0
        self.queue = ModelQueue()
        self.engines = Engines()
        self.condition = READY
        self.page = SlimPage(self.readiness, lambda: {"m": self.queue}, lambda: self.engines, lambda: self.now)

    def readiness(self) -> dict[str, EngineCondition]:
        """Counted: it is asked for whenever the page is written."""
        self.asked += 1
        return {"m": self.condition}


def test_a_number_that_has_changed_is_on_the_next_page() -> None:
    pod = Pod()
    assert b"gateway_num_requests_running 0.0\n" in pod.page()
    pod.queue = ModelQueue(running=2, waiting=1)
    assert b"gateway_num_requests_running 2.0\n" in pod.page()
    pod.engines = Engines(EngineLoad(waiting=1), "nv_trt_llm_x 1\n")
    assert b"gateway_num_requests_running 1.0\n" in pod.page()
    assert pod.page().endswith(b"nv_trt_llm_x 1\n")


def test_the_page_of_the_same_numbers_is_kept_for_a_quarter_of_a_second() -> None:
    pod = Pod()
    pages = set()
    for _ in range(5):
        pages.add(pod.page())
        pod.now += 0.05
    assert (len(pages), pod.asked) == (1, 1)
    pod.condition = EngineCondition(ready=False, state="unreachable")
    pod.now += 0.05
    assert b'gateway_model_ready{model="m"} 0.0\n' in pod.page()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer folder in which every byte is a token."""
    return write_tokenizer(tmp_path_factory.mktemp("bytes"))


async def scrape(running: Gateway, method: str = "GET", path: str = "/metrics", **headers: str) -> httpx.Response:
    """An answer that is not held against the document, which knows nothing of settings."""
    answer = await running.client.send(running.client.build_request(method, path, headers=headers), stream=True)
    await answer.aread()
    return answer


async def test_a_scrape_gets_what_the_route_answers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with gateway(folder, server=SLIM) as running:
        soon = await scrape(running, **{"x-request-id": "mine"})
        monkeypatch.setattr("gateway.web.scrapes._is_scrape", lambda _: False)
        late = await scrape(running, **{"x-request-id": "mine"})
    assert soon.status_code == 200
    assert soon.headers["x-request-id"] == "mine"
    assert sorted(soon.headers.items()) == sorted(late.headers.items())
    assert soon.text == late.text


@pytest.mark.parametrize(
    ("method", "headers", "level"),
    [("HEAD", {}, logging.INFO), ("GET", {"origin": "https://a.example"}, logging.INFO), ("GET", {}, logging.DEBUG)],
)
async def test_what_needs_more_goes_the_way_of_all_requests(
    folder: Path, caplog: pytest.LogCaptureFixture, method: str, headers: dict[str, str], level: int
) -> None:
    caplog.set_level(level, "gateway.access")
    async with gateway(folder, server={**SLIM, "cors": {"origins": ["https://a.example"]}}) as running:
        answer = await scrape(running, method, **headers)
        assert answer.status_code == 200
        assert ("access-control-allow-origin" in answer.headers) == bool(headers)
    lines = [record for record in caplog.records if record.name == "gateway.access"]
    assert [getattr(line, "path", None) for line in lines] == (["/metrics"] if level == logging.DEBUG else [])


async def test_scrapes_are_counted_and_wait_where_the_page_does() -> None:
    metrics, pages, seen = Metrics(), [b"page", None], []

    async def app(scope: Scope, *_: Any) -> None:
        seen.append(scope["path"])

    async def send(message: Message) -> None:
        seen.append(message.get("body") or message["status"])

    middleware = ScrapesMiddleware(app, lambda: pages.pop(0), metrics)
    for path in ("/metrics", "/metrics", "/health/live"):
        await middleware({"type": "http", "method": "GET", "path": path, "headers": []}, None, send)  # type: ignore[arg-type]
    assert seen == [200, b"page", "/metrics", "/health/live"]
    count = 'gateway_requests_total{endpoint="/metrics",model="",status="200"} 1.0'
    assert count in metrics.render({}, {})[0].decode()
