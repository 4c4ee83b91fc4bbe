"""A browser, and a gateway whose page it opens: with a scripted model, one that tells log-probs, one that is away."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway_ops.local_stack.minilm import ensure_embedding_folder
from gateway_ops.local_stack.stack import embedding_entry
from tests.clients.page.browser import Browser, Page
from tests.clients.programs.conftest import TEMPLATE, written
from tests.npm import UnavailableError
from tests.ports import free_port
from tests.scripted_engine.replay import ScriptedServer
from tests.stack import GatewayProcess
from tests.waiting import wait_until

SPOKEN, TINY, AWAY = "spoken", "tiny", "away"
Serve = Callable[..., GatewayProcess]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A browser; tests are skipped where there is none, and none to be had."""
    try:
        with Browser() as started:
            started.open("about:blank")
            yield started
    except UnavailableError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def spoken(
    browser: Browser, scripted_triton: ScriptedServer, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """The entry of the scripted model."""
    template = tmp_path_factory.mktemp("page") / "template.jinja"
    template.write_text(TEMPLATE, encoding="utf-8")
    return {
        "name": SPOKEN,
        "triton": {"url": scripted_triton.grpc_url},
        "tokenizer": str(scripted_triton.model_dir),
        "template": str(template),
        "family": "hermes",
        "max_seq_len": 8192,
    }


@pytest.fixture
def serve(spoken: dict[str, Any], tmp_path: Path) -> Iterator[Serve]:
    """Starts a gateway of its own before the scripted model, with further settings."""
    started: list[GatewayProcess] = []

    def start(**sections: Any) -> GatewayProcess:
        file = tmp_path / "gateway.yaml"
        write(file, {"models": [spoken], **sections})
        gateway = GatewayProcess(tmp_path / "log", GATEWAY_CONFIG=str(file))
        started.append(gateway)
        gateway.start(ready=False)
        return gateway

    yield start
    for gateway in started:
        gateway.stop()


def write(file: Path, settings: dict[str, Any]) -> None:
    """Replace a settings file at once."""
    written(file, {"server": {"reload_s": 0.05}} | settings)


@pytest.fixture(scope="session")
def page_gateway(
    spoken: dict[str, Any], triton: Any, tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    """The gateway with all three."""
    tiny = {"name": TINY, "triton": {"url": triton.grpc_url}, "tokenizer": str(tiny_model_dir), "max_seq_len": 2048}
    away = tiny | {"name": AWAY, "triton": {"url": f"127.0.0.1:{free_port()}"}}
    folder = tmp_path_factory.mktemp("page-gateway")
    write(folder / "gateway.yaml", {"models": [spoken, tiny, away]})
    gateway = GatewayProcess(folder / "log", GATEWAY_CONFIG=str(folder / "gateway.yaml"))
    try:
        gateway.start(ready=False)
        wait_until(lambda: gateway.metric("gateway_model_ready") >= 2, 60)  # all but the one that is away
        yield gateway
    finally:
        gateway.stop()


@pytest.fixture(scope="session")
def embedder(browser: Browser, triton_smollm2: Any) -> dict[str, Any]:
    """The entry of a model that embeds, with an input type."""
    entry = embedding_entry(ensure_embedding_folder(), triton_smollm2.grpc_url)
    return entry | {"name": "embedding", "aliases": [], "encoder": {"input_types": {"query": {"prefix": "query: "}}}}


@pytest.fixture
def page(browser: Browser, page_gateway: GatewayProcess) -> Iterator[Page]:
    """The page, ready to chat; at the end of a test its console has nothing that the test has not looked at."""
    page = browser.open(page_gateway.url)
    page.says(f"{SPOKEN} is ready.")
    yield page
    assert page.problems() == []
