"""``gateway top`` as operators run it: on a terminal and for programs, over the real stack."""

from __future__ import annotations

import contextlib
import io
import json
import re
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from gateway_ops.cli.top_display import view
from gateway_ops.top.activity import activity
from gateway_ops.top.scrapes import Interval, Scrape
from tests.ports import free_port
from tests.raw_server import raw_server, read_request
from tests.scripted_engine.replay import ScriptedServer, turn
from tests.stack import GatewayProcess
from tests.terminal import GatewayTerminal, environ
from tests.warm_gateways import WarmGateways

KEY = "sk-of-the-test"
MODEL = "scripted"


def top(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    return WarmGateways.of_this_process().run(
        ["top", "--interval", "0.1", *arguments], environ(GATEWAY_API_KEY=KEY) | more
    )


@contextlib.contextmanager
def gateway(server: ScriptedServer, log: Path, **more: str) -> Iterator[GatewayProcess]:
    with GatewayProcess(
        log,
        GATEWAY_TRITON_URL=server.grpc_url,
        GATEWAY_TOKENIZER=str(server.model_dir),
        GATEWAY_MAX_SEQ_LEN="4096",
        GATEWAY_API_KEYS=KEY,
        **{"GATEWAY_MODEL": MODEL, **more},
    ) as process:
        yield process


class Asked:
    """A streamed request whose answer is held, in a thread; a context manager that leaves it."""

    def __init__(self, url: str) -> None:
        self._host, self._port = url.removeprefix("http://").split(":")
        self._socket = socket.create_connection((self._host, int(self._port)))
        body = json.dumps({"model": MODEL, "stream": True, "messages": [{"role": "user", "content": "hold"}]})
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        self._socket.sendall((head + body).encode())
        said = b""
        while b'"content":"B' not in said:
            part = self._socket.recv(65536)
            assert part, said
            said += part

    def __enter__(self) -> Asked:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()


@pytest.mark.parametrize("workers", ["1", "2"])
def test_what_runs_is_counted(scripted_triton: ScriptedServer, tmp_path: Path, workers: str) -> None:
    scripted_triton.play(turn("hold", text="Begun", hold=True))
    with gateway(scripted_triton, tmp_path / "log", GATEWAY_WORKERS=workers) as process, Asked(process.url):
        done = top(f"{process.url}/v1", "--json")
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        (model,) = found["models"]
        assert (model["model"], model["ready"], model["running"], model["waiting"]) == (MODEL, True, 1, 0)
        assert (model["refused"], model["endpoints"]) == ({}, [])
        assert found["total"]["running"] == 1
        assert found["total"]["memory_bytes"] > 1e6
        assert found["seconds"] >= 0.1
        assert found["missing"] == ["No queue or KV cache of Triton: models[].triton.metrics_url is not set."]
        shown = top(process.url, "--once", COLUMNS="200").stdout
        assert f"{process.url}, 0." in shown
        assert "1 running, 0 waiting" in shown
        assert "none rejected" in shown
        assert MODEL in shown


def test_a_live_view_shows_what_happens_and_that_the_gateway_is_away(
    scripted_triton: ScriptedServer, tmp_path: Path
) -> None:
    scripted_triton.play(turn(None, text="Hello there.<|im_end|>"))
    with gateway(scripted_triton, tmp_path / "log") as process:
        command = ["top", process.url, "--interval", "0.3"]
        with GatewayTerminal(command, environ(GATEWAY_API_KEY=KEY)) as terminal:
            terminal.expect("none rejected")
            stop = threading.Event()

            def ask() -> None:
                while not stop.is_set():
                    headers = {"Authorization": f"Bearer {KEY}"}
                    body: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]}
                    process._client.post("/v1/chat/completions", json=body, headers=headers, timeout=30)
                    process._client.post("/v1/chat/completions", json={**body, "n": 0}, headers=headers, timeout=30)

            asking = threading.Thread(target=ask)
            asking.start()
            try:
                terminal.expect("rejected ")
                terminal.expect(" x 400")
                terminal.expect(" ms")
            finally:
                stop.set()
                asking.join()
            process.stop()
            terminal.expect(f"{process.url} is unreachable")
            process.start()
            terminal.expect("none rejected")
            terminal.interrupt()
            assert terminal.end() == 0
    assert "Traceback" not in terminal.plain


LONG = "meta-llama/Llama-3.3-70B-Instruct-FP8-in-the-long-run"


def test_lines_fit_the_terminal_and_names_keep_both_ends(scripted_triton: ScriptedServer, tmp_path: Path) -> None:
    shown: dict[int, list[str]] = {}
    with gateway(scripted_triton, tmp_path / "log", GATEWAY_MODEL=LONG) as process:
        for columns in (60, 80, 120):
            command = ["top", process.url, "--interval", "0.1", "--once"]
            with GatewayTerminal(command, environ(GATEWAY_API_KEY=KEY), columns=columns, rows=24) as terminal:
                assert terminal.end() == 0
            shown[columns] = [line.rstrip() for line in terminal.plain.splitlines()]
        piped = top(process.url).stdout.splitlines()
    for columns, lines in shown.items():
        assert max(map(len, lines)) <= columns
        assert len(lines) < 24
        (model,) = [line for line in lines if line.startswith("meta-")]
        assert "  ready  " in model
    narrow, usual, wide = (" ".join(lines) for lines in shown.values())
    assert re.search(r"meta-llama/Lla\S*…\S*-long-run  ready", narrow)
    assert "columns that do not fit: req/s, first ms, next ms" in narrow
    assert "first ms" in usual
    assert "columns that do not fit: req/s" in usual
    assert f"{LONG}  ready" in wide
    assert "no room" not in wide
    assert any(line.startswith(f"{LONG}  ready") for line in piped)  # whole for programs, whatever its length


def test_slim_metrics_and_a_missing_key_are_said(scripted_triton: ScriptedServer, tmp_path: Path) -> None:
    with gateway(scripted_triton, tmp_path / "log", GATEWAY_METRICS="slim") as process:
        found = json.loads(top(process.url, "--json", GATEWAY_API_KEY="sk-wrong").stdout)
        (model,) = found["models"]
        assert (model["ready"], model["running"], model["waiting"], model["requests_per_s"]) == (True, 0, None, None)
        assert model["first_token_s"] == {"p50": None, "p99": None}
        slim, key = found["missing"]
        assert slim.startswith("These are the reduced metrics")
        assert key.startswith("No reasons: /v1/models could not be read.")
        assert slim[:60] in top(process.url, COLUMNS="200").stdout


def test_triton_s_own_queue_is_shown_where_the_gateway_tells_it(
    triton: Any, tiny_model_dir: Path, tmp_path: Path
) -> None:
    with GatewayProcess.of_model(
        tmp_path / "log",
        "tiny",
        triton.grpc_url,
        tiny_model_dir,
        2048,
        GATEWAY_TRITON_METRICS_URL=f"{triton.metrics_url}",
    ) as process:
        (found,) = json.loads(top(process.url, "--json").stdout)["tritons"]
    assert (found["endpoint"], found["up"], found["pending"]) == (triton.grpc_url, True, 0)


@pytest.mark.parametrize("page", [b"<html></html>", b"# TYPE a gauge\na 1\n", b'a{b="} 1\n', b"\xff\xfe"])
def test_another_server_is_said_to_be_none(page: bytes) -> None:
    def serve(peer: socket.socket) -> None:
        read_request(peer)
        peer.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + page)

    with raw_server(serve) as url:
        done = top(url)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"error: {url}/metrics has no metrics of this gateway.\n"


def test_a_gateway_that_is_away_is_an_error() -> None:
    done = top(f"http://127.0.0.1:{free_port()}")
    assert done.returncode == 1
    assert "is unreachable" in done.stderr


PAGE = """\
# TYPE gateway_model_ready gauge
gateway_model_ready{{model="m"}} 0.0
# TYPE gateway_requests counter
gateway_requests_total{{endpoint="/v1/chat/completions",model="m",status="200"}} {served}
gateway_requests_total{{endpoint="/metrics",model="",status="200"}} 500
# TYPE gateway_completion_tokens counter
gateway_completion_tokens_total{{model="m"}} {tokens}
# TYPE gateway_time_to_first_token_seconds histogram
gateway_time_to_first_token_seconds_bucket{{le="0.1",model="m"}} {fast}
gateway_time_to_first_token_seconds_bucket{{le="0.5",model="m"}} {middle}
gateway_time_to_first_token_seconds_bucket{{le="+Inf",model="m"}} {all}
# TYPE gateway_endpoint_state gauge
gateway_endpoint_state{{endpoint="a:1",model="m",state="failing"}} 1
gateway_endpoint_state{{endpoint="a:1",model="m",state="ready"}} 0
# TYPE gateway_endpoint_requests_in_flight gauge
gateway_endpoint_requests_in_flight{{endpoint="a:1",model="m"}} 3
# TYPE gateway_triton_metrics_up gauge
gateway_triton_metrics_up{{endpoint="a:1"}} 1
# TYPE nv_trt_llm_kv_cache_block_metrics gauge
nv_trt_llm_kv_cache_block_metrics{{endpoint="a:1",kv_cache_block_type="used",model="tensorrt_llm",version="1"}} 12
"""


def test_rates_and_times_are_of_the_interval() -> None:
    before = Scrape.parse(PAGE.format(served=100, tokens=1000, fast=90, middle=90, all=100), 10.0)
    now = Scrape.parse(PAGE.format(served=110, tokens=1400, fast=95, middle=100, all=110), 12.0)
    told = {"m": {"endpoints": {"a:1": {"state": "failing", "reason": "It fails."}}}}
    (model,) = activity(Interval(before, now), {"m": {"reason": "It is away."}}, health=told)["models"]
    assert (model["ready"], model["reason"]) == (False, "It is away.")
    assert (model["requests_per_s"], model["completion_tokens_per_s"]) == (5.0, 200.0)
    assert model["first_token_s"] == {"p50": 0.1, "p99": 0.492}  # of ten: five below 0.1, five below 0.5
    assert model["endpoints"] == [
        {"endpoint": "a:1", "state": "failing", "reason": "It fails.", "failing_share": None, "running": 3}
    ]
    assert model["slow"] == {"count": 0, "of": 10, "later_than_s": 0.5}
    (model,) = activity(Interval(before, now), {}, 0.09)["models"]
    assert model["slow"] == {"count": 5, "of": 10, "later_than_s": 0.1}
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(view("http://a", activity(Interval(before, now), {}, 0.09), 100))
    assert " m: 5 of 10 first tokens came after more than 0.1 s" in console.export_text()
    found = activity(Interval(before, now), {})
    assert found["total"]["requests_per_s"] == 5.0
    assert found["tritons"][0]["engines"] == {"tensorrt_llm": {"kv_cache_blocks": {"used": 12.0}}}
    assert found["missing"] == []


def test_a_gateway_that_started_anew_has_no_negative_rates() -> None:
    before = Scrape.parse(PAGE.format(served=100, tokens=1000, fast=90, middle=90, all=100), 10.0)
    now = Scrape.parse(PAGE.format(served=4, tokens=8, fast=4, middle=4, all=4), 12.0)
    (model,) = activity(Interval(before, now), {})["models"]
    assert (model["requests_per_s"], model["completion_tokens_per_s"]) == (2.0, 4.0)
    assert model["first_token_s"]["p50"] == 0.05
    before = Scrape.parse(PAGE.format(served=10, tokens=8, fast=9, middle=9, all=10), 10.0)
    now = Scrape.parse(PAGE.format(served=11, tokens=8, fast=5, middle=5, all=11), 12.0)  # it has answered more since
    (model,) = activity(Interval(before, now), {})["models"]
    assert model["slow"]["count"] == 0
