"""A real Triton that is told to end while answers run."""

from __future__ import annotations

import asyncio
import os
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from gateway.generation import SamplingParams
from gateway.generation.engine import Engine, EngineError, ErrorKind
from gateway.generation.request import GenerationRequest
from gateway.text.prompt.prompt import Prompt
from gateway.triton import TritonBackend
from gateway.triton.transports import TransportName
from gateway.triton.triton_backend import HealthChecks
from tests.engine_requests import generation_request
from tests.scripted_engine.replay import ScriptedServer, turn, write_scripted_model
from tests.waiting import until


@pytest.fixture
def leaving(chat_repository: Path, tmp_path: Path) -> Iterator[ScriptedServer]:
    model_dir = tmp_path / "model"
    model_dir.mkdir()
    write_scripted_model(model_dir)
    server = ScriptedServer(chat_repository, model_dir, tmp_path, ("--exit-timeout-secs=60",))
    server.triton.start()
    try:
        server.triton.wait_ready()
        yield server
    finally:
        server.triton.kill()


@pytest.mark.parametrize("transport", ["h2", "grpcio"])
async def test_it_gets_no_new_work_and_what_runs_is_answered(
    leaving: ScriptedServer, transport: TransportName, tmp_path: Path
) -> None:
    released = tmp_path / "released"
    leaving.play(turn("go on", text="one two three", until=str(released)), turn("Hi", text="Hello"))
    tokenizer = Tokenizer.from_file(str(leaving.model_dir / "tokenizer.json"))

    def ask(text: str) -> GenerationRequest:
        prompt = Prompt(text=text, ids=tuple(tokenizer.encode(text).ids))
        return generation_request(uuid.uuid4().hex, prompt, 40, params=SamplingParams(temperature=0.0))

    async def generate(engine: Engine, text: str) -> list[int]:
        return [token async for chunk in engine.generate(ask(text)) for token in chunk.ids]

    async with TritonBackend(
        leaving.grpc_url, "ensemble", "tokens", transport=transport, health=HealthChecks(0.1)
    ) as backend:
        await backend.wait_ready(30)
        engine = backend.engine
        running = asyncio.create_task(generate(engine, "go on"))
        await until(lambda: bool(leaving.requests()))
        assert leaving.triton.pid is not None
        os.kill(leaving.triton.pid, signal.SIGTERM)
        await until(lambda: not backend.status.ready)
        assert not running.done()
        with pytest.raises(EngineError) as rejected:
            await generate(engine, "Hi")
        assert rejected.value.kind is ErrorKind.UNAVAILABLE
        released.touch()
        assert tokenizer.decode(await asyncio.wait_for(running, 30)) == "one two three"
