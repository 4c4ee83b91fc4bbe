"""The states of an encoder on the real Triton, as docs/explanation/reliability.md has them for engines."""

from __future__ import annotations

import contextlib
import queue
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import yaml
from tritonclient.grpc import InferenceServerClient, InferInput

from gateway_ops.local_stack.minilm import ensure_embedding_folder
from gateway_ops.local_stack.stack import embedding_entry
from gateway_ops.local_stack.tritonserver import EMBEDDING, EMBEDDING_VARIABLE, TritonServer
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
    model["triton"] |= {"stall_s": 3, "probe_s": 2}
    file = tmp_path / "gateway.yaml"
    file.write_text(yaml.safe_dump({"models": [model], "timeouts": {"first_token_s": 30}}))
    with GatewayProcess(tmp_path / "gateway.log", GATEWAY_CONFIG=str(file)) as running:
        yield running


_HELD = """
import time
execute = TritonPythonModel.execute
def held(self, requests):
    while os.path.exists(os.environ["HELD"]):
        time.sleep(0.01)
    if os.path.exists(os.environ["HELD"] + ".slow"):
        time.sleep(1)
    return execute(self, requests)
TritonPythonModel.execute = held
"""
"""Lets the model wait for as long as there is a file, and a second for each batch while there is another."""


@contextlib.contextmanager
def _all_minilm(
    repository: Path, folder: Path, *, weights: bool = True
) -> Iterator[tuple[TritonServer, GatewayProcess]]:
    """The model ``embedding`` by itself in a Triton, and a gateway before it; it waits while there is ``held``."""
    shutil.copytree(repository / EMBEDDING, folder / "repository" / EMBEDDING)
    with (folder / "repository" / EMBEDDING / "1" / "model.py").open("a") as code:
        code.write(_HELD)
    env = {"HELD": str(folder / "held")} | ({EMBEDDING_VARIABLE: str(ensure_embedding_folder())} if weights else {})
    with TritonServer(folder / "repository", model_dir=None, env=env, log_path=folder / "triton.log") as triton:
        triton.wait_ready([EMBEDDING])
        model = embedding_entry(ensure_embedding_folder(), triton.grpc_url) | {"name": MODEL}
        model["triton"] |= {"stall_s": 3, "probe_s": 2}
        file = folder / "gateway.yaml"
        file.write_text(yaml.safe_dump({"models": [model], "timeouts": {"first_token_s": 30}}))
        with GatewayProcess(folder / "gateway.log", GATEWAY_CONFIG=str(file)) as gateway:
            yield triton, gateway


def _embed(gateway: GatewayProcess) -> httpx.Response:
    return httpx.post(f"{gateway.url}/v1/embeddings", json={"model": MODEL, "input": "a"}, timeout=60)


def _told(gateway: GatewayProcess, status: int) -> dict[str, Any]:
    told: dict[str, Any] = gateway.wait("/health/ready", status, 20).json()["models"][MODEL]
    return told


def test_all_minilm_hangs_and_is_killed(repository: Path, tmp_path: Path) -> None:
    with _all_minilm(repository, tmp_path) as (triton, gateway):
        assert _embed(gateway).status_code == 200
        (tmp_path / "held").touch()
        assert _told(gateway, 503)["state"] == "stalled"
        assert _embed(gateway).status_code == 503
        (tmp_path / "held").unlink()
        assert _told(gateway, 200)["state"] == "ready"
        assert _embed(gateway).status_code == 200
        kill_stub(triton, EMBEDDING)
        assert _embed(gateway).status_code in (500, 503)
        assert _told(gateway, 503)["state"] == "failing"


def test_all_minilm_that_is_busy_with_requests_of_others_is_ready(repository: Path, tmp_path: Path) -> None:
    with _all_minilm(repository, tmp_path) as (triton, gateway), InferenceServerClient(triton.grpc_url) as other:
        text = InferInput("text", [64, 1], "BYTES")  # a full batch: Triton joins no two of them
        text.set_data_from_numpy(np.array([[b"a"]] * 64, dtype=np.object_))
        assert _embed(gateway).status_code == 200
        (tmp_path / "held.slow").touch()
        answers = queue.SimpleQueue[Any]()
        for _ in range(12):
            other.async_infer(EMBEDDING, [text], lambda **answer: answers.put(answer["error"]))
        assert [answers.get(timeout=60) for _ in range(12)] == [None] * 12
        (tmp_path / "held.slow").unlink()
        assert _told(gateway, 200)["state"] == "ready"
        assert "engine_stalled" not in "".join(gateway.log_lines())


def test_all_minilm_without_its_folder_fails_every_request(repository: Path, tmp_path: Path) -> None:
    with _all_minilm(repository, tmp_path, weights=False) as (_, gateway):
        answer = _embed(gateway)
        assert answer.status_code in (500, 503)
        assert EMBEDDING_VARIABLE not in answer.text
        assert _told(gateway, 503)["state"] == "failing"


def test_its_process_is_killed(own: EncoderServer, gateway: GatewayProcess) -> None:
    assert _embed(gateway).status_code == 200
    kill_stub(own.triton, MODEL)
    assert _embed(gateway).status_code in (500, 503)  # a probe may have found it first
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
