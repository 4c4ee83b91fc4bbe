"""The server process, in front of a Triton that is not there."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.ports import free_port
from tests.stack import GatewayProcess
from tests.waiting import wait_until


@pytest.fixture
def process(folder: Path, tmp_path: Path) -> GatewayProcess:
    return GatewayProcess(
        tmp_path / "log",
        GATEWAY_MODEL="m",
        GATEWAY_TRITON_URL=f"127.0.0.1:{free_port()}",
        GATEWAY_TOKENIZER=str(folder),
        GATEWAY_MAX_SEQ_LEN="256",
    )


def configured(folder: Path, tmp_path: Path, **sections: Any) -> GatewayProcess:
    """A process that reads a settings file."""
    model = {"name": "m", "triton": {"url": "localhost:1"}, "tokenizer": str(folder), "max_seq_len": 9}
    file = tmp_path / "gateway.yaml"
    file.write_text(json.dumps({**sections, "models": [{**model, "allow_request_template": True}]}))
    return GatewayProcess(tmp_path / "log", GATEWAY_CONFIG=str(file))


def test_it_serves_says_why_it_is_not_ready_and_ends_cleanly(process: GatewayProcess) -> None:
    process.launch()
    try:
        answer = process.wait("/health/ready", 503)
        assert answer.json()["models"]["m"]["reason"]
        body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
        rejected = httpx.post(f"{process.url}/v1/chat/completions", json=body)
        assert rejected.status_code == 503
        assert int(rejected.headers["retry-after"]) >= 1
        assert "server" not in rejected.headers
    finally:
        status = process.stop()
    assert status == 0
    lines = [json.loads(line) for line in process.log_lines()]
    assert [line["status"] for line in lines if line["logger"] == "gateway.access"] == [503]
    ours = [line["event"] for line in lines if line["logger"].startswith("gateway")]
    assert {"no_api_keys", "listening", "engine_not_ready", "request", "shutting_down"} <= set(ours)
    assert not [line for line in lines if "event" in line and not line["logger"].startswith("gateway")]
    assert any("GATEWAY_API_KEYS" in line["message"] for line in lines)


def test_sighup_does_not_end_it_while_it_starts(process: GatewayProcess) -> None:
    process.launch()
    try:
        wait_until(lambda: "/site-packages/" in process.maps())  # it loads its first libraries
        while not process.answers():
            process.signal(signal.SIGHUP)
        process.wait("/health/live", 200)
    finally:
        status = process.stop()
    assert status == 0


def test_connections_are_bounded(folder: Path, tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        process = configured(folder, tmp_path, limits={"max_connections": 3})
        process.start(ready=False)
        stack.callback(process.stop)
        inside = [stack.enter_context(httpx.Client(base_url=process.url)) for _ in range(3)]
        for client in inside:
            assert client.get("/health/live").status_code == 200
        rejected = httpx.get(f"{process.url}/health/live")
        assert (rejected.status_code, rejected.headers["retry-after"]) == (503, "1")
        error = rejected.json()["error"]
        assert (error["type"], error["param"], error["code"]) == ("server_error", None, "service_unavailable")
        assert inside[0].get("/health/live").status_code == 200
        inside[1].close()
        process.wait("/health/live", 200)
    warnings = [line["message"] for line in map(json.loads, process.log_lines()) if line["level"] == "WARNING"]
    assert "3 connections are open; further connections are rejected with 503" in warnings


@pytest.mark.long
def test_a_process_that_may_open_few_files_takes_fewer_connections(process: GatewayProcess) -> None:
    process.launch(most_files=600)
    try:
        process.wait("/health/live", 200)
        with contextlib.ExitStack() as stack:
            for _ in range(700):
                connection = stack.enter_context(socket.create_connection(("127.0.0.1", process.port)))
            assert connection.fileno() > 700
            assert process.files() < 500
        process.wait("/health/live", 200)
    finally:
        process.stop()
    assert any(
        "this process may open 600 files and accepts at most 300 connections" in line for line in process.log_lines()
    )


def test_the_last_files_are_for_errors_and_the_liveness_probe(process: GatewayProcess) -> None:
    process.launch(most_files=96)
    try:
        process.wait("/health/live", 200)
        kept = httpx.Limits(keepalive_expiry=None)
        with httpx.Client(base_url=process.url, verify=False, limits=kept) as inside, contextlib.ExitStack() as stack:
            assert inside.get("/health/live").status_code == 200
            while (
                stack.enter_context(httpx.Client(base_url=process.url, verify=False)).get("/version").status_code == 200
            ):
                pass
            for _ in range(40):  # silent ones are closed for those that come later
                stack.enter_context(socket.create_connection(("127.0.0.1", process.port)))
            for _ in range(10):
                rejected = process._client.get("/version")
                assert (rejected.status_code, rejected.headers["retry-after"]) == (503, "1")
                assert "limit of open files" in rejected.json()["error"]["message"]
                probe = process._client.get("/health/live")
                assert (probe.status_code, probe.headers["connection"]) == (200, "close")
            assert 'gateway_connections_rejected_total{reason="files"} 61.0' in inside.get("/metrics").text
        process.wait("/version", 200)
    finally:
        process.stop()
    (told,) = [line for line in map(json.loads, process.log_lines()) if line.get("event") == "files_full"]
    assert told["level"] == "WARNING"
    assert "96 open files" in told["message"]


def test_long_work_ends_with_503_when_the_time_of_a_shutdown_is_up(folder: Path, tmp_path: Path) -> None:
    """The one at work and those behind it, which together take longer than the server waits."""
    endless = "{% for i in range(9**5) %}{% for j in range(9**5) %}{% endfor %}{% endfor %}"
    body = json.dumps({"messages": [{"role": "user", "content": "a"}], "chat_template": endless}).encode()
    head = f"POST /tokenize HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
    process = configured(folder, tmp_path, server={"shutdown_s": 0})
    process.start(ready=False)
    with contextlib.ExitStack() as stack:
        stack.callback(process.stop)
        clients = [stack.enter_context(socket.create_connection(("127.0.0.1", process.port), 20)) for _ in range(3)]
        for client in clients:
            client.sendall(f"{head}\r\n\r\n".encode() + body)
        wait_until(lambda: bool(process.children()))  # the template is at work
        assert httpx.get(f"{process.url}/health/live").status_code == 200  # it has read what came before
        process.signal(signal.SIGTERM)
        for client in clients:
            with contextlib.closing(HTTPResponse(client)) as answer:
                answer.begin()
                error = json.loads(answer.read())["error"]
            assert (answer.status, answer.headers["retry-after"]) == (503, "1")
            assert (error["code"], error["message"]) == ("service_unavailable", "The gateway is shutting down.")
    assert "Traceback" not in process.log.read_text()
