"""The states of an encoder on the real Triton, as docs/explanation/reliability.md has them for engines."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.clients.test_states import kill_stub
from tests.doubles.encoders.encoder_server import EncoderServer
from tests.stack import GatewayProcess

pytestmark = pytest.mark.long
MODEL = "minilm"


@pytest.fixture
def own(encoder_folder: Path, tmp_path: Path) -> Iterator[EncoderServer]:
    """A Triton that a test may hurt."""
    with EncoderServer(tmp_path, encoder_folder, [MODEL]) as server:
        yield server


@pytest.fixture
def gateway(own: EncoderServer, tmp_path: Path) -> Iterator[GatewayProcess]:
    model = own.model(MODEL)
    model["triton"] |= {"stall_s": 1, "probe_s": 2}
    file = tmp_path / "gateway.yaml"
    file.write_text(yaml.safe_dump({"models": [model], "timeouts": {"first_token_s": 30}}))
    with GatewayProcess(tmp_path / "gateway.log", GATEWAY_CONFIG=str(file)) as running:
        yield running


def _embed(gateway: GatewayProcess) -> httpx.Response:
    return httpx.post(f"{gateway.url}/v1/embeddings", json={"model": MODEL, "input": "a"}, timeout=60)


def _told(gateway: GatewayProcess, status: int) -> dict[str, Any]:
    told: dict[str, Any] = gateway.wait("/health/ready", status, 20).json()["models"][MODEL]
    return told


def test_its_process_is_killed(own: EncoderServer, gateway: GatewayProcess) -> None:
    assert _embed(gateway).status_code == 200
    kill_stub(own.triton, MODEL)
    assert _embed(gateway).status_code == 500
    failed = time.monotonic()
    told = _told(gateway, 503)
    assert (told["state"], time.monotonic() - failed < 10) == ("failing", True)
    assert _embed(gateway).status_code == 503


def test_it_fails_every_request(own: EncoderServer, gateway: GatewayProcess) -> None:
    own.set("failing")
    answer = _embed(gateway)
    assert answer.status_code == 500
    assert "/secret" not in answer.text
    failed = time.monotonic()
    told = _told(gateway, 503)
    assert (told["state"], time.monotonic() - failed < 10) == ("failing", True)
    assert _embed(gateway).status_code == 503
    own.set("well")
    assert _told(gateway, 200)["state"] == "ready"
    assert _embed(gateway).status_code == 200
    assert "probe-" not in "\n".join(gateway.log_lines())


def test_it_hangs(own: EncoderServer, gateway: GatewayProcess) -> None:
    """Nothing has begun: the probe after the quiet time finds it, and it is back with the first result."""
    own.set("silent")
    told = _told(gateway, 503)
    assert told["state"] == "stalled"
    assert _embed(gateway).status_code == 503
    own.set("well")
    assert _told(gateway, 200)["state"] == "ready"
    assert _embed(gateway).status_code == 200
