"""The running stack by each transport: by both paths, what a client meets is the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.clients.conftest import TINY as MODEL
from tests.clients.conftest import TINY_MAX_SEQ_LEN
from tests.stack import GatewayProcess

ASK: dict[str, Any] = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "go on"}],
    "temperature": 0,
    "max_tokens": 40,
    "stream": True,
    "stream_options": {"include_usage": True},
}


@pytest.fixture(scope="module", params=["tokens", "ensemble"])
def gateways(
    request: pytest.FixtureRequest, triton: Any, tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, GatewayProcess]]:
    """A gateway by each transport, on one path."""
    folder = tmp_path_factory.mktemp("transports")
    processes = {
        name: GatewayProcess(
            folder / name,
            GATEWAY_MODEL=MODEL,
            GATEWAY_TRITON_URL=triton.grpc_url,
            GATEWAY_TOKENIZER=str(tiny_model_dir),
            GATEWAY_MAX_SEQ_LEN=str(TINY_MAX_SEQ_LEN),
            GATEWAY_PATH=request.param,
            GATEWAY_TRANSPORT=name,
        )
        for name in ("grpcio", "h2", "auto")
    }
    with processes["grpcio"], processes["h2"], processes["auto"]:
        yield processes


def said(gateway: GatewayProcess, body: dict[str, Any]) -> list[Any]:
    """The events of a stream, without what differs from answer to answer."""
    events = []
    with httpx.stream("POST", f"{gateway.url}/v1/chat/completions", json=body, timeout=30) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: {"):
                event = json.loads(line[6:])
                events.append({key: value for key, value in event.items() if key not in ("id", "created")})
            elif line.startswith("data:"):
                events.append(line)
    return events


def test_the_same_streams(gateways: dict[str, GatewayProcess]) -> None:
    bodies = [ASK | {"messages": [{"role": "user", "content": f"go on {n}"}]} for n in range(8)]
    with ThreadPoolExecutor(8) as pool:
        by = {name: list(pool.map(lambda body, gate=gate: said(gate, body), bodies)) for name, gate in gateways.items()}
    assert by["h2"] == by["grpcio"] == by["auto"]
    assert all(events[-1] == "data: [DONE]" for events in by["h2"])
    assert all(events[-2]["usage"]["completion_tokens"] > 10 for events in by["h2"])


def test_the_same_refusal(gateways: dict[str, GatewayProcess]) -> None:
    body = ASK | {"messages": [{"role": "user", "content": "word " * 40_000}], "stream": False}
    answers = [gateway.post(body) for gateway in gateways.values()]
    assert [answer.status_code for answer in answers] == [400, 400, 400]
    assert answers[0].json() == answers[1].json() == answers[2].json()


def test_the_log_tells_which_transport(gateways: dict[str, GatewayProcess]) -> None:
    for name, gateway in gateways.items():
        (line,) = gateway.logged("engine ready")
        assert json.loads(line)["transport"] == ("h2" if name == "auto" else name)
