"""The server process in front of a Triton that is not there, and settings that change while it runs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from gateway.app import create_app
from gateway.generation import GenerationRequest
from gateway.settings import ModelSettings, SettingsSource
from gateway.telemetry.early_signals import outlive_hangups
from tests.app.harness import USER, says
from tests.app.scripted import Script, ScriptedBackend, ScriptedEngine, Step
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
            counter = 'gateway_connections_rejected_total{reason="files"}'
            wait_until(lambda: f"{counter} 41.0" in inside.get("/metrics").text)  # none is accepted after the next one
            for _ in range(10):
                rejected = process._client.get("/version")
                assert (rejected.status_code, rejected.headers["retry-after"]) == (503, "1")
                assert "limit of open files" in rejected.json()["error"]["message"]
                probe = process._client.get("/health/live")
                assert (probe.status_code, probe.headers["connection"]) == (200, "close")
            assert f"{counter} 61.0" in inside.get("/metrics").text
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


POLL_S = 0.02


def model(name: str, folder: Path, **changes: Any) -> dict[str, Any]:
    return {"name": name, "triton": {"url": "h:1"}, "tokenizer": str(folder), "max_seq_len": 256, **changes}


@dataclass
class Running:
    """A running application, its settings file, and the backends it has made, oldest first."""

    file: Path
    made: list[tuple[ModelSettings, ScriptedBackend]] = field(default_factory=list)
    client: httpx.AsyncClient = field(init=False)

    def write(self, *models: dict[str, Any], **sections: Any) -> None:
        """Replace the file at once, as editors and Kubernetes do."""
        new = self.file.with_suffix(".new")
        new.write_text(yaml.safe_dump({"server": {"reload_s": POLL_S}, "models": list(models)} | sections))
        new.replace(self.file)

    def backends(self, name: str) -> list[ScriptedBackend]:
        return [backend for settings, backend in self.made if settings.name == name]

    async def names(self) -> list[str]:
        return [entry["id"] for entry in (await self.client.get("/v1/models")).json()["data"]]

    async def chat(self, name: str, **body: Any) -> httpx.Response:
        return await self.client.post("/v1/chat/completions", json={"model": name, "messages": USER, **body})

    async def metric(self, line: str) -> float:
        text = (await self.client.get("/metrics")).text
        (value,) = [each.rpartition(" ")[2] for each in text.splitlines() if each.startswith(f"{line} ")]
        return float(value)

    async def reloaded(self, applied: int = 0, rejected: int = 0) -> None:
        """Wait for so many reloads since the start."""
        await until(lambda: self._count("applied"), applied)
        await until(lambda: self._count("refused"), rejected)

    async def _count(self, outcome: str) -> float:
        return await self.metric(f'gateway_settings_reloads_total{{outcome="{outcome}"}}')


async def until(value: Callable[[], Awaitable[object]], expected: object) -> None:
    end = time.monotonic() + 10
    while (found := await value()) != expected:
        assert time.monotonic() < end, found
        await asyncio.sleep(POLL_S)


@contextlib.asynccontextmanager
async def running(tmp_path: Path, *models: dict[str, Any], script: Script | None = None) -> AsyncIterator[Running]:
    gateway = Running(tmp_path / "gateway.yaml")
    gateway.write(*models)
    source = SettingsSource.find(gateway.file, {})

    def make(settings: ModelSettings) -> ScriptedBackend:
        def answers(request: GenerationRequest) -> list[Step]:
            return script(request) if script else says(Path(str(settings.tokenizer)), settings.name)(request)

        backend = ScriptedBackend(ScriptedEngine(answers))
        gateway.made.append((settings, backend))
        return backend

    app = create_app(source.load(), make, source)
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    client = httpx.AsyncClient(base_url="http://localhost", transport=transport)
    async with app.router.lifespan_context(app), client:
        gateway.client = client
        yield gateway
    assert all(backend.closed for _, backend in gateway.made)


async def test_a_changed_file_changes_what_is_served(folder: Path, tmp_path: Path) -> None:
    async with running(tmp_path, model("a", folder), model("b", folder)) as gateway:
        assert await gateway.names() == ["a", "b"]
        gateway.write(model("b", folder), model("c", folder, aliases=["d"]))
        await gateway.reloaded(applied=1)
        assert await gateway.names() == ["b", "c", "d"]
        assert (await gateway.chat("a")).status_code == 404
        answer = await gateway.chat("d")
        assert answer.json()["choices"][0]["message"]["content"] == "c"
        assert answer.json()["model"] == "c"
        await until(lambda: closed(gateway, "a"), [True])
        assert await closed(gateway, "b") == [False]  # the same one as before: no new connection


async def closed(gateway: Running, name: str) -> list[bool]:
    return [backend.closed for backend in gateway.backends(name)]


async def test_a_running_stream_keeps_its_model(folder: Path, tmp_path: Path) -> None:
    proceed = asyncio.Event()

    def script(request: GenerationRequest) -> list[Step]:
        first, *rest = says(folder, "Hello")(request)
        return [first, proceed, *rest]

    async with running(tmp_path, model("a", folder), script=script) as gateway:
        first = asyncio.create_task(gateway.chat("a", stream=True))
        (before,) = gateway.backends("a")
        await before._initial.asked.wait()  # type: ignore[union-attr]
        gateway.write(model("a", folder, max_stops=5))
        await gateway.reloaded(applied=1)
        before, after = gateway.backends("a")
        second = asyncio.create_task(gateway.chat("a", stream=True))
        await after._initial.asked.wait()  # type: ignore[union-attr]
        assert not before.closed
        proceed.set()
        for answer in (await first, await second):
            assert answer.text.endswith("data: [DONE]\n\n")
        assert len(before._initial.requests) == len(after._initial.requests) == 1  # type: ignore[union-attr]
        await until(lambda: closed(gateway, "a"), [True, False])


@pytest.mark.parametrize(
    "text",
    [
        "models: [",
        "models: []",
        "models: [{name: a, triton: {url: 'h:1'}, max_stps: 1}]",
        "models: [{name: a, triton: {url: 'h:1'}, tokenizer: /nowhere, max_seq_len: 10}]",
    ],
)
async def test_a_broken_file_leaves_everything_in_force(
    folder: Path, tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path, model("a", folder)) as gateway:
        gateway.file.write_text(text)
        await gateway.reloaded(rejected=1)
        assert "reload rejected, the previous settings stay in use" in caplog.text
        assert (await gateway.chat("a")).status_code == 200
        assert await gateway.metric("gateway_settings_last_reload_successful") == 0
        gateway.write(model("a", folder), model("b", folder))
        await gateway.reloaded(applied=1, rejected=1)
        assert await gateway.metric("gateway_settings_last_reload_successful") == 1
        assert await gateway.names() == ["a", "b"]
        assert await closed(gateway, "a") == ([False, True] if "nowhere" in text else [False])


async def test_what_needs_a_restart_is_named(folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with running(tmp_path, model("a", folder)) as gateway:
        gateway.write(model("a", folder), server={"reload_s": POLL_S, "port": 9001}, timeouts={"total_s": 5})
        await gateway.reloaded(applied=1)
    warnings = [record.getMessage() for record in caplog.records if "restart" in record.getMessage()]
    assert [warning.partition(" ")[0] for warning in warnings] == ["server.port", "timeouts.total_s"]


async def test_sighup(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "own.jinja").write_text("{% for m in messages %}[{{ m.content }}]{% endfor %}")
    async with running(tmp_path, model("a", folder, template="own.jinja"), model("b", folder)) as gateway:
        os.kill(os.getpid(), signal.SIGHUP)
        await gateway.reloaded(applied=1)
        assert len(gateway.made) == 2  # nothing differs
        (tmp_path / "own.jinja").write_text("{% for m in messages %}<{{ m.content }}>{% endfor %}")
        os.kill(os.getpid(), signal.SIGHUP)
        await gateway.reloaded(applied=2)
        await gateway.chat("a")
        assert gateway.backends("a")[-1]._initial.requests[0].prompt.text == "<Hi>"  # type: ignore[union-attr]
        assert await closed(gateway, "b") == [False]


async def test_sighup_before_it_was_up_makes_it_reload_once_it_is(folder: Path, tmp_path: Path) -> None:
    former = signal.getsignal(signal.SIGHUP)
    outlive_hangups()
    try:
        os.kill(os.getpid(), signal.SIGHUP)
        async with running(tmp_path, model("a", folder)) as gateway:
            await gateway.reloaded(applied=1)
    finally:
        signal.signal(signal.SIGHUP, former)
