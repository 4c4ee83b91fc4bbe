"""What is left of requests that have ended, and of models that a reload has replaced: nothing."""

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
from gateway.generation import EngineChunk, EngineError, ErrorKind, GenerationRequest
from gateway.serving.registry import Registry
from gateway.settings import Settings
from tests.app.harness import USER, Gateway, gateway, says
from tests.app.scripted import MODEL, ByteIds, ScriptedBackend, ScriptedEngine, Step, settings_for, write_tokenizer
from tests.faults.stack import ask, stack
from tests.garbage import check_leaves_nothing
from tests.triton.scripted_triton import ScriptedTriton
from tests.waiting import until

CHAT = "/v1/chat/completions"
TEXT = "A word or two. " * 1000
LONGER = TEXT * 7  # which is parsed in another thread


async def check(running: Gateway, path: str, body: dict[str, Any], status: int = 200, said: str = "") -> None:
    async def ask() -> None:
        answer = await running.client.post(path, json={"model": MODEL, **body}, headers={"connection": "close"})
        assert answer.status_code == status, answer.text
        assert said in answer.text
        running.engine.requests.clear()

    await check_leaves_nothing(ask)


def chat(text: str = "Hi", role: str = "user", **more: Any) -> tuple[str, dict[str, Any]]:
    return CHAT, {"messages": [{"role": role, "content": text}], "max_tokens": 3, **more}


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        (*chat(), 200),
        (*chat(stream=True), 200),
        (*chat(stream=True, n=2), 200),
        (*chat(temperature=9), 400),
        (*chat(logprobs=True, top_logprobs=2, stream=True), 200),
        *((*chat(text, role), status) for text in (TEXT, LONGER) for role, status in (("user", 200), ("nobody", 400))),
        ("/v1/completions", {"prompt": [TEXT, "Hi"], "n": 2, "echo": True, "max_tokens": 3}, 200),
        ("/v1/responses", {"input": "Hi", "max_output_tokens": 3, "store": False}, 200),
        ("/v1/responses", {"input": TEXT, "max_output_tokens": 3, "store": False, "stream": True}, 200),
        ("/v1/responses/input_tokens", {"input": TEXT}, 200),
        ("/v1/messages", {"messages": USER, "max_tokens": 3}, 200),
        ("/v1/messages", {"messages": [{"role": "user", "content": TEXT}], "max_tokens": 3, "stream": True}, 200),
        ("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": TEXT}]}, 200),
        ("/tokenize", {"prompt": TEXT, "return_token_strs": True}, 200),
        ("/detokenize", {"tokens": [65] * 20_000}, 200),
    ],
)
async def test_a_request_leaves_nothing(folder: Path, path: str, body: dict[str, Any], status: int) -> None:
    async with gateway(folder, served=True, max_seq_len=200_000) as running:
        await check(running, path, body, status)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_call_leaves_nothing(tmp_path: Path, *, stream: bool) -> None:
    write_tokenizer(tmp_path, "{{ tools }}{% for message in messages %}{{ message.content }}{% endfor %}")
    ids = ByteIds(tmp_path).of('<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>')

    def calls(_: GenerationRequest) -> list[Step]:
        return [*(EngineChunk(ids=[index]) for index in ids), EngineChunk(final=True)]

    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    async with gateway(tmp_path, calls, served=True, family="hermes") as running:
        await check(running, CHAT, {"messages": USER, "tools": tools, "stream": stream}, said='"tool_calls"')


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("path", "body"), [(CHAT, {"messages": USER}), ("/v1/completions", {"prompt": "Hi"})])
async def test_a_request_that_fails_leaves_nothing(
    folder: Path, path: str, body: dict[str, Any], *, stream: bool
) -> None:
    ids = ByteIds(folder).of("abc")

    def breaks(_: GenerationRequest) -> list[Step]:
        return [*(EngineChunk(ids=[index]) for index in ids), EngineError(ErrorKind.INTERNAL, "It broke.")]

    async with gateway(folder, breaks, served=True) as running:
        await check(running, path, {"max_tokens": 5, "stream": stream, **body}, 200 if stream else 500, "error")


async def test_a_client_that_leaves_leaves_nothing(folder: Path) -> None:
    ids = ByteIds(folder).of("abc")

    def waits(_: GenerationRequest) -> list[Step]:
        return [*(EngineChunk(ids=[index]) for index in ids), asyncio.Event()]

    body = {"model": MODEL, "max_tokens": 5, "stream": True, "messages": USER}
    async with gateway(folder, waits, served=True) as running:

        async def ask() -> None:
            async with running.client.stream("POST", CHAT, json=body) as answer:
                async for _ in answer.aiter_lines():
                    break
            running.engine.requests.clear()

        await check_leaves_nothing(ask)


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
                name, applied = "gateway_settings_reloads_total", 'outcome="applied"'
                await running.until(lambda: running.gateway.metric(name, applied) == reload)  # noqa: B023 - at once
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
