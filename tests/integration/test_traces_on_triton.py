"""A trace through the gateway and the real Triton: one tree, and Triton's part only where it is wanted."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from gateway_ops.local_stack.tritonserver import TritonServer
from tests.stack import GatewayProcess
from tests.telemetry.collector import Collector, Span, collecting

CLIENT = 3
PARENT = "b7ad6b7169203331"
ATTEMPTS = 8  # Triton 2.51 reads a context without its length: now and then it finds it invalid, and traces nothing
PATIENCE_S = 4


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with collecting() as running:
        yield running


@pytest.fixture(scope="module")
def triton(
    collector: Collector, repository: Path, tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TritonServer]:
    """It exports spans of those requests alone whose caller gives a context."""
    own = (f"url={collector.url}/v1/traces", "bsp_schedule_delay=100")
    settings = ("mode=opentelemetry", "level=TIMESTAMPS", "rate=0", *(f"opentelemetry,{each}" for each in own))
    options = [f"--trace-config={setting}" for setting in settings]
    log = tmp_path_factory.mktemp("traced") / "triton.log"
    with TritonServer(repository, model_dir=tiny_model_dir, log_path=log, options=options) as server:
        server.wait_ready()
        yield server


def spans_of(collector: Collector, trace: str) -> tuple[list[Span], list[Span]]:
    """Those of the gateway and Triton's."""
    spans = [span for span in collector.spans if span.trace == trace]
    own = [span for span in spans if span.name.startswith(("POST ", "gateway.", "chat "))]
    return own, [span for span in spans if span not in own]


@pytest.mark.parametrize("transport", ["h2", pytest.param("grpcio", marks=pytest.mark.long)])
def test_triton_s_spans_stand_below_the_gateway_s(
    triton: TritonServer, collector: Collector, tiny_model_dir: Path, tmp_path: Path, transport: str
) -> None:
    model = {
        "name": "tiny",
        "triton": {"url": triton.grpc_url, "transport": transport},
        "tokenizer": str(tiny_model_dir),
        "max_seq_len": 512,
    }
    telemetry = {"traces": True, "endpoint": collector.url, "sample_ratio": 0.0, "traceparent_to_triton": True}
    with GatewayProcess(tmp_path / "log", {"telemetry": telemetry, "models": [model]}) as gateway:
        unsampled = ask(gateway, "00")
        for _ in range(ATTEMPTS):
            trace = ask(gateway, "01")
            if arrived(collector, trace):
                break
    own, of_triton = spans_of(collector, trace)
    (call,) = [span for span in own if span.kind == CLIENT]
    assert [span.name for span in of_triton if span.parent == call.id] == ["InferRequest"]
    assert {"tensorrt_llm", "compute"} <= {span.name for span in of_triton}
    assert spans_of(collector, unsampled) == ([], [])


def ask(gateway: GatewayProcess, flag: str) -> str:
    """Send a request with a context, sampled (01) or not (00); the id of its trace."""
    trace = uuid.uuid4().hex
    body = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
    headers = {"traceparent": f"00-{trace}-{PARENT}-{flag}"}
    answer = httpx.post(f"{gateway.url}/v1/chat/completions", json=body, headers=headers, timeout=60)
    assert answer.status_code == 200
    return trace


def arrived(collector: Collector, trace: str) -> bool:
    """Whether Triton's part of a trace has come, which it exports now and then."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if {"InferRequest", "tensorrt_llm", "compute"} <= {span.name for span in spans_of(collector, trace)[1]}:
            return True
        time.sleep(0.05)
    return False
