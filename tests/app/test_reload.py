"""Settings that change while the gateway runs: what changes with them, and what goes on."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
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
