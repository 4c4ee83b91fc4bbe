"""``python -m benchmarks.scrapes``: CPU that 20 scrapes a second of ``/metrics`` cost, as an endpoint picker's do.

A gateway of its own reads the page of a Triton that this script plays, with TensorRT-LLM's families in it. The CPU is
that of all its processes in a time with scrapes, less that of as long a time without; medians of interleaved rounds.
``/health/live`` beside it is what any request costs at this pace, and uvicorn with an application that answers two
bytes what none can cost less than.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import httpx
from starlette.types import Receive, Scope, Send

RATE = 20
_KINDS = {
    "request": ("active", "max", "scheduled", "context", "waiting"),
    "kv_cache_block": ("max", "free", "used", "tokens_per", "reused", "fraction"),
    "runtime_memory": ("cpu", "gpu", "pinned"),
}
_CORE = ("success", "failure", "count", "exec_count", "pending_request_count", "request_duration_us",
         "queue_duration_us", "compute_input_duration_us", "compute_infer_duration_us",
         "compute_output_duration_us")  # fmt: skip
_MODELS = ("preprocessing", "tensorrt_llm", "postprocessing", "ensemble", "tensorrt_llm_bls")


def triton_page() -> bytes:
    """A page as Triton with TensorRT-LLM gives it."""
    lines = []
    for family, kinds in _KINDS.items():
        name = f"nv_trt_llm_{family}_metrics"
        lines += [f"# HELP {name} TRT LLM {family} metrics", f"# TYPE {name} gauge"]
        label = "memory" if family == "runtime_memory" else family
        lines += [f'{name}{{model="tensorrt_llm",{label}_type="{kind}",version="1"}} 7' for kind in kinds]
    for core in _CORE:
        name = f"nv_inference_{core}"
        lines += [f"# HELP {name} Of each model", f"# TYPE {name} counter"]
        lines += [f'{name}{{model="{model}",version="1"}} 1234567' for model in _MODELS]
    return "\n".join(lines).encode() + b"\n"


@contextmanager
def _triton() -> Iterator[int]:
    page = triton_page()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()


@contextmanager
def _gateway(workers: int, shown: str, triton: int) -> Iterator[tuple[int, str]]:
    """A gateway process; gives its id and its URL."""
    port = 18_000 + os.getpid() % 10_000
    settings = {
        "GATEWAY_PORT": str(port), "GATEWAY_METRICS": shown, "GATEWAY_MODEL": "m", "GATEWAY_TRITON_URL": "127.0.0.1:1",
        "GATEWAY_TRITON_METRICS_URL": f"http://127.0.0.1:{triton}/metrics", "GATEWAY_API_KEYS": "key",
        "GATEWAY_LAME_DUCK_S": "0", "GATEWAY_WORKERS": str(workers),
    }  # fmt: skip
    command = [str(Path(sys.executable).with_name("gateway")), "serve"]
    with tempfile.TemporaryDirectory() as home:
        process = subprocess.Popen(command, env=os.environ | settings | {"XDG_STATE_HOME": home}, stderr=-3, stdout=-3)
        try:
            url = f"http://127.0.0.1:{port}"
            _wait(url)
            yield process.pid, url
        finally:
            process.terminate()
            process.wait()


@contextmanager
def _bare() -> Iterator[tuple[int, str]]:
    """Uvicorn alone, as the gateway sets it up; gives its id and its URL."""
    port = 18_000 + os.getpid() % 10_000
    options = ["--no-access-log", "--log-level", "critical", "--loop", "uvloop", "--http", "httptools"]
    command = [sys.executable, "-m", "uvicorn", "benchmarks.scrapes:empty", "--port", str(port), *options]
    process = subprocess.Popen(command)
    try:
        url = f"http://127.0.0.1:{port}"
        _wait(url)
        yield process.pid, url
    finally:
        process.terminate()
        process.wait()


async def empty(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer every request with two bytes."""
    del receive
    if scope["type"] == "http":
        headers = [(b"content-type", b"text/plain"), (b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"ok"})


def _wait(url: str) -> None:
    host, _, port = url.removeprefix("http://").partition(":")
    deadline = time.monotonic() + 180  # several workers of a busy machine
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex((host, int(port))) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError(url)


def _cpu(pid: int) -> float:
    """Seconds of CPU of a process and its children so far."""
    processes = [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]
    threads = [thread for each in processes for thread in Path(f"/proc/{each}/task").iterdir()]
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


def _spent(pid: int, client: httpx.Client, path: str | None, seconds: float) -> float:
    """CPU over a time, with requests for a path or without any."""
    before, begun = _cpu(pid), time.monotonic()
    for number in range(int(RATE * seconds)):
        if path is not None:
            client.get(path).raise_for_status()
        time.sleep(max(0.0, begun + (number + 1) / RATE - time.monotonic()))
    return _cpu(pid) - before


def main() -> None:
    """Measure both pages, with one worker and with four, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10)
    arguments = parser.parse_args()
    print("| page | workers | CPU a request | of a core at 20/s |\n|---|---:|---:|---:|")
    with _bare() as (pid, url), _client(url) as client:
        _row("an empty answer of uvicorn", 1, _share(pid, client, "/", arguments))
    for workers in (1, 4):
        for shown, path in (("slim", "/health/live"), ("slim", "/metrics"), ("all", "/metrics")):
            with _triton() as triton, _gateway(workers, shown, triton) as (pid, url), _client(url) as client:
                share = _share(pid, client, path, arguments)
            _row(f"{path}, {shown}" if path == "/metrics" else path, workers, share)


def _share(pid: int, client: httpx.Client, path: str, arguments: argparse.Namespace) -> float:
    """Seconds of CPU a second that requests for a path cost."""
    _spent(pid, client, path, 2)
    rounds = [
        _spent(pid, client, path, arguments.seconds) - _spent(pid, client, None, arguments.seconds)
        for _ in range(arguments.rounds)
    ]
    return statistics.median(rounds) / float(arguments.seconds)


def _row(name: str, workers: int, share: float) -> None:
    print(f"| {name} | {workers} | {share / RATE * 1e6:.0f} us | {share:.2%} |", flush=True)


def _client(url: str) -> httpx.Client:
    return httpx.Client(base_url=url, timeout=120)  # of several workers one may still be starting


if __name__ == "__main__":
    main()
