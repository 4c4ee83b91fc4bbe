"""The end of a gateway as its clients meet it: with notice, in stages, and hurried by further signals."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.ports import free_port
from tests.scripted_engine.replay import ScriptedServer, turn
from tests.stack import GatewayProcess
from tests.waiting import wait_until

MODEL = "m"
ASK: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]}
LONG = {"model": MODEL, "messages": [{"role": "user", "content": "go on"}], "stream": True}


@pytest.fixture(scope="module")
def triton(scripted_triton: ScriptedServer) -> ScriptedServer:
    """Answers one question at once, and another without end."""
    scripted_triton.play(turn("Hi", text="Hello there.<|im_end|>"), turn("go on", text="one two", hold=True))
    return scripted_triton


Start = Callable[..., GatewayProcess]


@pytest.fixture
def start(triton: ScriptedServer, tmp_path: Path) -> Iterator[Start]:
    started: list[GatewayProcess] = []

    def one(**env: str) -> GatewayProcess:
        env |= {"GATEWAY_MODEL": MODEL, "GATEWAY_TRITON_URL": triton.grpc_url, "GATEWAY_MAX_SEQ_LEN": "2048"}
        tokenizer = str(triton.model_dir)
        gateway = GatewayProcess(tmp_path / f"log{len(started)}", GATEWAY_TOKENIZER=tokenizer, **env)
        started.append(gateway)
        gateway.fork()
        return gateway

    yield one
    for gateway in started:
        gateway.signal(signal.SIGKILL)
        gateway.stop()


def ended(gateway: GatewayProcess) -> int:
    """Wait for its end; the exit status."""
    return gateway._process.wait(20)


class Stream:
    """A long stream that is being read."""

    def __init__(self, gateway: GatewayProcess) -> None:
        self._url = gateway.url
        self.begun = threading.Event()
        self.text = b""
        self._thread = threading.Thread(target=self._read)
        self._thread.start()
        assert self.begun.wait(20)

    def _read(self) -> None:
        with httpx.stream("POST", f"{self._url}/v1/chat/completions", json=LONG, timeout=30) as answer:
            for part in answer.iter_raw():
                self.text += part
                if b'"content"' in self.text:
                    self.begun.set()

    def end(self) -> bytes:
        self._thread.join(20)
        return self.text


def is_aborted(text: bytes) -> bool:
    """Whether a stream ended with an error event, and is not taken for whole."""
    *_, last = [line for line in text.split(b"\n") if line.startswith(b"data: ")]
    return "error" in json.loads(last[6:])


@pytest.mark.parametrize("workers", ["1", "2"])
def test_notice_is_given_before_connections_are_refused(start: Start, workers: str) -> None:
    gateway = start(GATEWAY_WORKERS=workers, GATEWAY_LAME_DUCK_S="600", GATEWAY_SHUTDOWN_S="600")
    gateway.wait("/health/ready", 200)
    with httpx.Client(base_url=gateway.url, timeout=20) as client:
        assert "connection" not in client.post("/v1/chat/completions", json=ASK).headers
        stream = Stream(gateway)
        gateway.signal(signal.SIGTERM)
        reason = gateway.wait("/health/ready", 503).json()["models"][MODEL]["reason"]
        assert reason == "the gateway is shutting down"
        for answer in (client.post("/v1/chat/completions", json=ASK), httpx.get(f"{gateway.url}/health/live")):
            assert answer.status_code == 200
            assert answer.headers["connection"] == "close"
    gateway.signal(signal.SIGTERM)  # no more notice
    wait_until(lambda: not gateway.answers())
    assert not is_aborted(stream.text)
    gateway.signal(signal.SIGTERM)  # no more time for what runs
    assert is_aborted(stream.end())
    assert ended(gateway) == 0


@pytest.mark.parametrize("workers", ["1", "2"])
def test_ctrl_c_gives_no_notice(start: Start, workers: str) -> None:
    gateway = start(GATEWAY_WORKERS=workers, GATEWAY_LAME_DUCK_S="600", GATEWAY_SHUTDOWN_S="0.2")
    gateway.wait("/health/ready", 200)
    stream = Stream(gateway)
    gateway.signal(signal.SIGINT)
    assert is_aborted(stream.end())
    assert ended(gateway) == 0


def test_notice_ends_by_itself_and_the_internal_port_stays(start: Start) -> None:
    internal = free_port()
    gateway = start(
        GATEWAY_LAME_DUCK_S="0.3", GATEWAY_SHUTDOWN_S="600", GATEWAY_INTERNAL_PORT=str(internal), GATEWAY_WORKERS="1"
    )
    gateway.wait("/health/ready", 200)
    stream = Stream(gateway)
    gateway.signal(signal.SIGTERM)
    wait_until(lambda: not gateway.answers())
    assert httpx.get(f"http://127.0.0.1:{internal}/health/ready").status_code == 503
    assert httpx.get(f"http://127.0.0.1:{internal}/metrics").status_code == 200
    gateway.signal(signal.SIGTERM)
    assert is_aborted(stream.end())
    assert ended(gateway) == 0


def is_ready(gateway: GatewayProcess) -> bool:
    try:
        return httpx.get(f"{gateway.url}/health/ready", timeout=5).status_code == 200
    except httpx.TransportError:
        return False


class Balancer:
    """Sends requests to gateways that said that they are ready, as a Service of Kubernetes does, a moment late."""

    def __init__(self, gateways: list[GatewayProcess]) -> None:
        self.gateways = gateways
        self.ready: list[str] = []
        self.failures: list[str] = []
        self.answers = 0
        self.using: dict[int, str] = {}
        self.stop = threading.Event()
        self._lock = threading.Lock()

    def look(self) -> None:
        while not self.stop.is_set():
            self.ready = [gateway.url for gateway in list(self.gateways) if is_ready(gateway)]
            self.stop.wait(0.1)

    def load(self, number: int) -> None:
        """Ask again and again on one connection; another one, perhaps elsewhere, once that is to end."""
        while not self.stop.is_set():
            ready = self.ready
            if not ready:
                self.stop.wait(0.02)
                continue
            self.using[number] = ready[number % len(ready)]
            with httpx.Client(base_url=self.using[number], timeout=30) as client:
                while not self.stop.is_set():
                    try:
                        answer = client.post("/v1/chat/completions", json=ASK)
                    except httpx.TransportError as error:
                        self.failures.append(repr(error))
                        break
                    with self._lock:
                        self.answers += 1
                    if answer.status_code != 200:
                        self.failures.append(answer.text)
                    if answer.headers.get("connection") == "close":
                        break

    def wait_left(self, url: str) -> None:
        """Wait until nobody asks a gateway any more: it has said that it is not ready, and ended connections."""
        wait_until(lambda: url not in {*self.ready, *self.using.values()}, 30)


@pytest.mark.parametrize("workers", ["1", pytest.param("4", marks=pytest.mark.long)])
def test_rolling_restarts_under_load_lose_no_request(start: Start, workers: str) -> None:
    env = {"GATEWAY_WORKERS": workers, "GATEWAY_LAME_DUCK_S": "600"}
    gateways = [start(**env), start(**env)]
    for gateway in gateways:
        gateway.wait("/health/ready", 200)
    balancer = Balancer(gateways)
    with ThreadPoolExecutor(9) as pool:
        done = [pool.submit(balancer.look), *(pool.submit(balancer.load, number) for number in range(8))]
        try:
            for place in range(2):
                later = start(**env)
                later.wait("/health/ready", 200)
                before, gateways[place] = gateways[place], later
                answered = balancer.answers
                wait_until(lambda: before.url in balancer.using.values(), 30)  # noqa: B023 - before the next one
                before.signal(signal.SIGTERM)
                before.wait("/health/ready", 503)  # a second signal before it has seen the first one would be lost
                balancer.wait_left(before.url)
                before.signal(signal.SIGTERM)
                assert ended(before) == 0
                assert balancer.answers > answered
        finally:
            balancer.stop.set()
        for each in done:
            each.result()
    assert balancer.failures == []
