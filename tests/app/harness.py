"""The application over a scripted engine, in process and behind a real HTTP server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from gateway.app import create_app, unread_answer
from gateway.generation import EngineChunk, EngineFeatures, GenerationRequest
from gateway.http.http_protocol import http_protocol
from gateway.serving.generator_model import GeneratorModel
from tests.app.documented import DocumentedClient
from tests.app.scripted import MODEL, TOKENS, ByteIds, Script, ScriptedBackend, ScriptedEngine, Step, settings_for

USER = [{"role": "user", "content": "Hi"}]


@dataclass
class Gateway:
    """A running application.

    Attributes:
        client: an HTTP client of it.
        engine: its engine.
        backend: its backend.
        model: its served model.
    """

    client: DocumentedClient
    engine: ScriptedEngine
    backend: ScriptedBackend
    model: GeneratorModel

    async def chat(self, **body: Any) -> httpx.Response:
        return await self.client.post("/v1/chat/completions", json={"model": MODEL, "messages": USER, **body})


def says(folder: Path, text: str) -> Script:
    """A script that answers ``text``, one token a byte, up to max_tokens."""
    ids = ByteIds(folder).of(text)

    def script(request: GenerationRequest) -> list[Step]:
        logprobs = [-0.5] if request.params.logprobs else None
        best = range(request.params.top_logprobs)
        given = [
            EngineChunk(ids=[index], logprobs=logprobs, top_logprobs=[[(index + rank, -0.5 - rank) for rank in best]])
            for index in ids[: request.max_tokens]
        ]
        return [*given, EngineChunk(final=True)]

    return script


def rejected(answer: httpx.Response, status: int, param: str | None, code: str | None) -> dict[str, Any]:
    """The error of an answer, which has this status, parameter and code."""
    assert answer.status_code == status, answer.text
    error: dict[str, Any] = answer.json()["error"]
    assert (error["param"], error["code"]) == (param, code), error
    assert (error["type"] == "invalid_request_error") == (status in {400, 404, 413, 422}), error
    return error


@contextlib.asynccontextmanager
async def gateway(
    folder: Path,
    script: Script | None = None,
    *,
    served: bool = False,
    features: EngineFeatures = TOKENS,
    engine_up: bool = True,
    tokenizer: Path | None = None,
    engine_type: type[ScriptedEngine] = ScriptedEngine,
    **changes: Any,
) -> AsyncIterator[Gateway]:
    """The application over a scripted engine.

    Args:
        folder: of the tokenizer.
        script: what the engine does; says "Hello" without one.
        served: by a real server on a loopback port (streams and disconnects as they are), else in process.
        features: of the engine.
        engine_up: whether the engine is there from the start.
        tokenizer: configured folder, ``folder`` without one.
        engine_type: what follows the script.
        changes: settings, as of ``settings_for``.
    """
    engine = engine_type(script or says(folder, "Hello"), features)
    backend = ScriptedBackend(engine if engine_up else None)
    app = create_app(settings_for(tokenizer or folder, **changes), backend_factory=lambda _: backend)
    async with app.router.lifespan_context(app), contextlib.AsyncExitStack() as stack:
        if served:
            url = await stack.enter_async_context(_server(app))
            transport: httpx.AsyncBaseTransport = httpx.AsyncHTTPTransport()
        else:
            url = "http://localhost"
            transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        keys = "api_keys" in changes.get("server", {}) or "auth" in changes
        client = DocumentedClient(keys, base_url=url, transport=transport, timeout=20)
        await stack.enter_async_context(client)
        yield Gateway(client, engine, backend, next(iter(app.state.registry)))
    assert engine.running == 0
    assert backend.closed


@contextlib.asynccontextmanager
async def _server(app: Any) -> AsyncIterator[str]:
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            host="127.0.0.1",
            port=0,
            http=http_protocol(unread_answer),
            lifespan="off",
            log_config=None,
            timeout_graceful_shutdown=5,
        )
    )
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign, assignment]
    task = asyncio.create_task(server.serve())
    try:
        while not server.started:
            assert not task.done()
            await asyncio.sleep(0)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        await task
