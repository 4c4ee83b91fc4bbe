"""What a user meets when Triton is away, comes back, or when clients leave early."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

import httpx

from gateway_ops.local_stack.tritonserver import TritonServer
from tests.clients.conftest import PATHS
from tests.clients.conftest import TINY as MODEL
from tests.integration.kserve import metric
from tests.stack import GatewayProcess
from tests.waiting import wait_until

# Greedy on the tiny model with this prompt runs to its limit: a request that only a cancel ends early.
LONG: dict[str, Any] = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "go on"}],
    "temperature": 0,
    "max_tokens": 1800,
    "stream": True,
}


async def leave_early(client: httpx.AsyncClient, url: str) -> None:
    """Read two text events of a long stream, then drop the connection."""
    seen = 0
    async with client.stream("POST", f"{url}/v1/chat/completions", json=LONG) as answer:
        assert answer.status_code == 200
        async for line in answer.aiter_lines():
            if line.startswith("data: {"):
                seen += 1
            if seen == 3:
                return
    raise AssertionError("the stream ended before the client could leave")


async def test_a_hundred_clients_that_leave_early_leave_nothing_behind(
    own_triton: TritonServer, tiny_model_dir: Path, tmp_path: Path
) -> None:
    limits = httpx.Limits(max_keepalive_connections=0)
    for path in PATHS:
        before = metric(own_triton.metrics_url, "nv_trt_llm_general_metrics", "iteration_counter")
        settings = {"GATEWAY_TRITON_URL": own_triton.grpc_url, "MODEL_DIR": str(tiny_model_dir), "GATEWAY_PATH": path}
        with GatewayProcess(tmp_path / path, GATEWAY_MODEL=MODEL, **settings) as gateway:
            async with httpx.AsyncClient(timeout=60, limits=limits) as client:
                for _ in range(10):
                    await asyncio.gather(*(leave_early(client, gateway.url) for _ in range(5)))
            wait_until(lambda: not metric(own_triton.metrics_url, "nv_trt_llm_request_metrics", "active"))
            steps = metric(own_triton.metrics_url, "nv_trt_llm_general_metrics", "iteration_counter") - before
            # Run to their ends, five at a time, they would take at least 10 x 1800 steps.
            assert steps < 6_000
            assert metric(own_triton.metrics_url, "nv_trt_llm_request_metrics", "waiting") == 0
            assert metric(own_triton.metrics_url, "nv_trt_llm_kv_cache_block_metrics", "used") == 0
            assert gateway.metric("gateway_requests_in_flight") == 0
            assert gateway.metric("gateway_requests_cancelled_total") == 50
            assert gateway.post(LONG | {"stream": False, "max_tokens": 4}).status_code == 200


def posted(gateway: GatewayProcess, body: dict[str, Any]) -> socket.socket:
    """A bare connection over which a chat request has been sent."""
    connection = socket.create_connection(("127.0.0.1", gateway.port), timeout=30)
    content = json.dumps(body).encode()
    head = f"Host: x\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\n" + head.encode() + content)
    return connection


def test_triton_away_and_back(chat_repository: Path, tiny_model_dir: Path, tmp_path: Path) -> None:
    """A dropped stream ends with an error event; 503 with Retry-After; service by itself once Triton is back."""
    first = TritonServer(chat_repository, model_dir=tiny_model_dir, log_path=tmp_path / "triton.log")
    first.start()
    first.wait_ready()
    # Nothing but the address: the tokenizer and the context length come from Triton's own configuration.
    gateway = GatewayProcess(
        tmp_path / "log", GATEWAY_MODEL=MODEL, GATEWAY_TRITON_URL=first.grpc_url, MODEL_DIR=str(tiny_model_dir)
    )
    try:
        gateway.start()
        with posted(gateway, LONG) as connection:
            answer = b""
            while answer.count(b"data: ") < 5:
                answer += connection.recv(4096)
            first.kill()
            while data := connection.recv(4096):  # until the gateway closes the connection, which it would keep alive
                answer += data
        last, end = answer.rsplit(b"data: ", 1)[1].split(b"\n\n")
        assert json.loads(last)["error"]["message"]
        assert end == b"\r\n0\r\n\r\n"  # the last chunk: an answer of HTTP is whole, one of OpenAI is not
        assert b"[DONE]" not in answer
        gateway.wait("/health/ready", 503)
        rejected = gateway.post(LONG)
        assert rejected.status_code == 503
        assert int(rejected.headers["retry-after"]) >= 1
        assert set(rejected.json()["error"]) == {"message", "type", "param", "code"}
        assert httpx.get(f"{gateway.url}/health/live").status_code == 200
        first.start()
        gateway.wait("/health/ready", 200)
        assert gateway.post(LONG | {"stream": False, "max_tokens": 4}).status_code == 200
    finally:
        gateway.stop()
        first.stop()
