"""The states of an engine, on the real Triton: what readiness says, what requests get, and what ends by itself."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from gateway_ops.local_stack.process_tree import arguments, descendants
from gateway_ops.local_stack.tritonserver import TritonServer
from tests.app.scripted import write_tokenizer
from tests.clients.conftest import TINY as MODEL
from tests.stack import GatewayProcess
from tests.warm_gateways import WarmGateways

SHORT: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "go on"}], "max_tokens": 2}


def kill_stub(triton: TritonServer, model: str) -> None:
    """Kill the process of a Python model, as a crash of an engine does; Triton goes on."""
    assert triton.pid is not None
    stubs = [pid for pid in descendants(triton.pid) if any(f"/{model}/" in word for word in arguments(pid)[:2])]
    assert stubs
    for pid in stubs:
        os.kill(pid, signal.SIGKILL)


def told(gateway: GatewayProcess, status: int) -> dict[str, Any]:
    """What readiness says of the model once it has a status."""
    answer: dict[str, Any] = gateway.wait("/health/ready", status, 20).json()["models"][MODEL]
    return answer


@pytest.mark.parametrize("workers", [1, pytest.param(3, marks=pytest.mark.long)])
def test_an_engine_process_that_dies(
    own_triton: TritonServer, tiny_model_dir: Path, tmp_path: Path, workers: int
) -> None:
    """Triton says that its models are ready; the first failed requests say otherwise, within ten seconds."""
    gateway = GatewayProcess(
        tmp_path / "log",
        GATEWAY_MODEL=MODEL,
        GATEWAY_TRITON_URL=own_triton.grpc_url,
        MODEL_DIR=str(tiny_model_dir),
        GATEWAY_WORKERS=str(workers),
    )
    with gateway:
        assert gateway.post(SHORT).status_code == 200
        kill_stub(own_triton, "tensorrt_llm")
        assert gateway.post(SHORT).status_code == 500
        failed = time.monotonic()
        dead = told(gateway, 503)
        assert time.monotonic() - failed < 10
        assert (dead["state"], dead["ready"]) == ("failing", False)
        assert httpx.get(f"{own_triton.http_url}/v2/models/ensemble/ready").status_code == 200, "as Triton has it"
        assert gateway.post(SHORT).status_code == 503
        assert gateway.wait("/health/live?engine=1", 503)
        assert gateway.metric("gateway_model_state", 'state="failing"') == 1
        if workers == 1:
            return  # to start Triton again takes long
        for target in (own_triton.grpc_url, gateway.url):
            assert check(target)[1].startswith("ready for traffic: no, because: ")
        failures = gateway.metric("gateway_engine_failures_total")
        own_triton.kill()
        assert told(gateway, 503)
        gateway.wait("/health/live?engine=1", 200)  # it is no longer there to be asked
        own_triton.start()
        own_triton.wait_ready()
        back = told(gateway, 200)
        while "degraded" in back:  # until the other workers have seen it
            back = told(gateway, 200)
        assert back == {"ready": True, "state": "ready"}
        assert gateway.post(SHORT).status_code == 200
        assert gateway.metric("gateway_engine_failures_total") == failures, "probes are in no metric of requests"
        assert "probe-" not in "\n".join(gateway.log_lines())


def check(target: str, *options: str) -> tuple[int, str, list[str]]:
    """Exit status, last line and all lines of ``gateway check``."""
    done = WarmGateways.of_this_process().run(["check", target, *options], os.environ)
    lines = done.stdout.splitlines()
    return done.returncode, lines[-1], lines


def test_a_tokenizer_of_another_model(triton: TritonServer, tiny_model_dir: Path, tmp_path: Path) -> None:
    other = write_tokenizer(tmp_path / "other")
    model = {"name": MODEL, "triton": {"url": triton.grpc_url}, "tokenizer": str(other), "max_seq_len": 2048}
    settings = tmp_path / "gateway.yaml"
    settings.write_text(yaml.safe_dump({"models": [model]}))
    status, last, _ = check(str(settings))
    assert status == 1
    assert last.startswith("ready for traffic: no, because: ")
    assert "is not the engine's" in last
    gateway = GatewayProcess(tmp_path / "log", GATEWAY_CONFIG=str(settings))
    try:
        gateway.fork()
        mismatched = told(gateway, 503)
        while mismatched["state"] in ("unreachable", "loading"):  # it has not been looked at yet
            mismatched = told(gateway, 503)
        assert mismatched["state"] == "mismatched"
        assert "is not the engine's" in mismatched["reason"]
        assert gateway.post(SHORT).status_code == 400
        gateway.stop()
        settings.write_text(yaml.safe_dump({"models": [model | {"check_tokenizer": False}]}))
        gateway.start()
        assert gateway.post(SHORT).status_code == 200
        gateway.stop()
        settings.write_text(yaml.safe_dump({"models": [model | {"tokenizer": str(tiny_model_dir)}]}))
        gateway.start()
        described = httpx.get(f"{gateway.url}/v1/models/{MODEL}").json()
        assert described["capabilities"]["tokenizer"]["how"] == "native"
        assert check(gateway.url)[:2] == (0, "ready for traffic: yes")
    finally:
        gateway.stop()


@pytest.mark.long
def test_a_server_that_is_stopped(own_triton: TritonServer, tiny_model_dir: Path, tmp_path: Path) -> None:
    """Its connections stay: a stream that has begun ends long before ``between_tokens_s``, and service comes back."""
    with GatewayProcess(
        tmp_path / "log", GATEWAY_MODEL=MODEL, GATEWAY_TRITON_URL=own_triton.grpc_url, MODEL_DIR=str(tiny_model_dir)
    ) as gateway:
        pid = own_triton.pid
        assert pid is not None
        body = SHORT | {"max_tokens": 1800, "temperature": 0, "stream": True}
        with httpx.stream("POST", f"{gateway.url}/v1/chat/completions", json=body, timeout=60) as answer:
            lines = answer.iter_lines()
            for _ in range(5):
                next(lines)
            os.kill(pid, signal.SIGSTOP)
            try:
                stopped = time.monotonic()
                assert "error" in [line for line in lines if line][-1]
                assert time.monotonic() - stopped < 40
                assert told(gateway, 503)["state"] == "unreachable"
            finally:
                os.kill(pid, signal.SIGCONT)
        assert told(gateway, 200)["state"] == "ready"
        assert gateway.post(SHORT).status_code == 200


def states(gateway: GatewayProcess) -> list[str]:
    """The states of the endpoints after a request, which is answered."""
    assert gateway.post(SHORT).status_code == 200
    described = httpx.get(f"{gateway.url}/v1/models/{MODEL}").json()["gateway"]["endpoints"]
    return [each["state"] for each in described]


@pytest.mark.long
def test_a_model_that_is_unloaded(repository: Path, tiny_model_dir: Path, tmp_path: Path) -> None:
    explicit = ("--model-control-mode=explicit", "--load-model=*")
    with TritonServer(
        repository, model_dir=tiny_model_dir, log_path=tmp_path / "triton.log", options=explicit
    ) as server:
        server.wait_ready()
        with GatewayProcess(
            tmp_path / "log", GATEWAY_MODEL=MODEL, GATEWAY_TRITON_URL=server.grpc_url, MODEL_DIR=str(tiny_model_dir)
        ) as gateway:
            assert gateway.post(SHORT).status_code == 200
            models = f"{server.http_url}/v2/repository/models"
            assert httpx.post(f"{models}/tensorrt_llm/unload", json={}, timeout=30).status_code == 200
            unloaded = time.monotonic()
            away = told(gateway, 503)
            assert time.monotonic() - unloaded < 3
            assert away["state"] == "loading"
            while "is not ready in Triton: UNAVAILABLE: unloaded" not in away["reason"]:  # as soon as it has asked why
                assert time.monotonic() - unloaded < 10
                away = told(gateway, 503)
            assert gateway.post(SHORT).status_code == 503
            assert gateway.wait("/health/live?engine=1", 200)  # one that loads is not killed
            for name in ("tensorrt_llm", "ensemble"):
                assert httpx.post(f"{models}/{name}/load", json={}, timeout=60).status_code == 200
            assert told(gateway, 200) == {"ready": True, "state": "ready"}
            assert gateway.post(SHORT).status_code == 200


async def spoil(client: httpx.AsyncClient, kind: str) -> None:
    """Send one request that comes to no answer."""
    body = SHORT | {"max_tokens": 1500, "temperature": -1 if kind == "rejected" else 0, "stream": kind == "left"}
    if kind == "left":
        async with client.stream("POST", "/v1/chat/completions", json=body) as answer:
            lines = answer.aiter_lines()
            while not (await anext(lines)).startswith("data: "):
                pass
        return
    asked = asyncio.ensure_future(client.post("/v1/chat/completions", json=body))
    if kind == "left before the answer":
        await asyncio.wait((asked,), timeout=0.05)
        asked.cancel()
        await asyncio.wait((asked,))
    else:
        assert (await asked).status_code == 400


async def give_up(client: httpx.AsyncClient, number: int) -> None:
    """Send one request with a new prompt, on which the engine is longer than the gateway waits for a token."""
    messages = [{"role": "user", "content": f"{number}. " + "go on " * 150}]
    assert (await client.post("/v1/chat/completions", json=SHORT | {"messages": messages})).status_code == 504


@pytest.mark.long
async def test_clients_take_no_engine_out(own_triton: TritonServer, tiny_model_dir: Path, tmp_path: Path) -> None:
    """Hundreds of requests in a row come to nothing; some at a gateway that gives each up before its token."""
    settings = {"GATEWAY_MODEL": MODEL, "GATEWAY_TRITON_URL": own_triton.grpc_url, "MODEL_DIR": str(tiny_model_dir)}
    before = own_triton.pid
    with (
        GatewayProcess(tmp_path / "log", **settings) as gateway,
        GatewayProcess(tmp_path / "hasty", **settings, GATEWAY_FIRST_TOKEN_TIMEOUT_S="0.005") as hasty,
    ):
        for kind in ("rejected", "left", "left before the answer", "timed out"):
            asked = hasty if kind == "timed out" else gateway
            limits = httpx.Limits(max_keepalive_connections=0)
            async with httpx.AsyncClient(base_url=asked.url, limits=limits, timeout=30, verify=False) as client:
                late = kind == "timed out"
                for number in range(0, 250, 5):
                    if late and number >= 50 and "may have stalled" in hasty.log.read_text():
                        break  # more would keep a slow engine busy for half a minute
                    some = range(number, number + 5)
                    await asyncio.gather(*(give_up(client, each) if late else spoil(client, kind) for each in some))
                    ready = (await client.get("/health/ready")).json()["models"][MODEL]
                    assert ready["ready"], (kind, ready)
        assert hasty.logged("may have stalled"), "its timeouts were held against the engine, until a probe was answered"
        for each in (gateway, hasty):
            found = told(each, 200)
            while "reason" in found:  # until the last probe has its token
                found = told(each, 200)
            assert found == {"ready": True, "state": "ready"}
            assert each.wait("/health/live?engine=1", 200)
            assert not [line for line in each.log_lines() if "engine not ready" in line]
        assert gateway.metric("gateway_requests_cancelled_total") >= 250
        assert gateway.post(SHORT).status_code == 200
    assert (own_triton.running, own_triton.pid) == (True, before)
