"""What is left of a model that a reload has replaced: nothing, however many reloads there are."""

from __future__ import annotations

import asyncio
import gc
import json
import signal
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from gateway.app import create_app
from gateway.serving.registry import Registry
from gateway.settings import Settings
from tests.app.harness import USER, says
from tests.app.scripted import ScriptedBackend, ScriptedEngine, settings_for, write_tokenizer
from tests.faults.stack import Stack, ask, stack
from tests.triton.scripted_triton import ScriptedTriton
from tests.waiting import until

_MIB = 2**20


@pytest.fixture
def frozen() -> Iterator[None]:
    """Keep what there is out of garbage collection, as a process that serves does."""
    gc.collect()
    yield
    gc.freeze()


@pytest.mark.usefixtures("frozen")
@pytest.mark.parametrize("where", ["url", pytest.param("endpoints", marks=pytest.mark.long)])
async def test_nothing_is_left_of_a_retired_model(folder: Path, where: str) -> None:
    async with ScriptedTriton() as triton:

        def settings(**changes: Any) -> Settings:
            address = triton.url if where == "url" else [triton.url]
            model = {"name": "a", "tokenizer": str(folder), "max_seq_len": 256, "triton": {where: address}}
            return Settings.model_validate({"models": [model | changes]})

        app = create_app(settings())
        registry: Registry = app.state.registry
        transport = httpx.ASGITransport(app=app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(base_url="http://localhost", transport=transport) as client,
        ):
            await registry.wait_ready()
            gc.freeze()
            retired = []
            for stops in range(1, 4):
                for stream in (False, True):
                    body = {"model": "a", "messages": USER, "max_tokens": 2, "n": 2, "stream": stream}
                    assert (await client.post("/v1/chat/completions", json=body)).status_code == 200
                retired.append(_references(registry))
                await registry.replace(settings(max_stops=stops).models)
            await _until_gone([each for model, tokenizer, _ in retired for each in (model, tokenizer)])
            gc.unfreeze()
            gc.collect()
            await _until_gone([backend for _, _, backend in retired])


async def test_the_collector_waits_until_no_request_runs(folder: Path) -> None:
    """It would hold all streams."""
    collected: list[int] = []

    def note(phase: str, about: dict[str, int]) -> None:
        if phase == "stop" and about["generation"] == 2:
            collected.append(about["collected"])

    app = create_app(settings_for(folder), lambda _: ScriptedBackend(ScriptedEngine(says(folder, "Hello"))))
    registry: Registry = app.state.registry
    loop = asyncio.get_running_loop()
    async with app.router.lifespan_context(app):
        before, later = loop.create_future(), loop.create_future()
        registry.running.add(before)
        await registry.replace(settings_for(folder, max_stops=1).models)
        await asyncio.sleep(0)  # it waits for the first
        registry.running.add(later)
        gc.collect()
        gc.callbacks.append(note)
        try:
            before.set_result(None)
            await until(lambda: not registry._retiring)
            assert not collected
            registry.running.clear()
            await until(lambda: bool(collected))
        finally:
            gc.callbacks.remove(note)


def _references(registry: Registry) -> tuple[weakref.ref[object], ...]:
    (model,) = registry
    return weakref.ref(model), weakref.ref(model.parts.tokenizer), weakref.ref(model.backend)


async def _until_gone(references: list[weakref.ref[object]]) -> None:
    end = time.monotonic() + 10
    while left := [kept for each in references if (kept := each()) is not None]:
        assert time.monotonic() < end, left
        left.clear()
        await asyncio.sleep(0.02)


@pytest.mark.long
async def test_memory_stays_flat_over_reloads(tmp_path: Path) -> None:
    tokenizer = _large(write_tokenizer(tmp_path / "large"))
    with stack(tmp_path, 1, model={"tokenizer": str(tokenizer)}, paced={"token_s": 0.0}) as running:
        settings = yaml.safe_load((tmp_path / "gateway.yaml").read_text())
        async with running.client() as client:
            held = []
            for reload in range(1, 41):
                settings["models"][0]["max_stops"] = 4 + reload % 2
                (tmp_path / "gateway.yaml").write_text(yaml.safe_dump(settings))
                running.gateway.signal(signal.SIGHUP)
                await running.until(lambda: _reloads(running) == reload)  # noqa: B023 - before the next one
                assert (await ask(client, 20)).whole
                held.append(running.gateway.metric("gateway_memory_bytes"))
        assert max(held[-5:]) - max(held[:5]) < 30 * _MIB, [round(each / _MIB) for each in held]


def _large(folder: Path) -> Path:
    """Add words to a tokenizer, which then takes 9 MiB."""
    file = folder / "tokenizer.json"
    tokenizer = json.loads(file.read_text())
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary.update({each["content"]: each["id"] for each in tokenizer["added_tokens"]})
    vocabulary.update({f"word{index}": index for index in range(len(vocabulary), 30_000)})
    file.write_text(json.dumps(tokenizer))
    return folder


def _reloads(running: Stack) -> float:
    return running.gateway.metric("gateway_settings_reloads_total", 'outcome="applied"')
