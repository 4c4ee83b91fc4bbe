"""Engines of both dialects on a real Triton, without the supervision of a backend."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from gateway.generation import SamplingParams
from gateway.generation.engine import EngineChunk, EngineError
from gateway.generation.request import GenerationRequest
from gateway.text.prompt.prompt import Prompt
from gateway.triton import EngineOptions
from gateway.triton.connection import Connection
from gateway.triton.dialects.ensemble import EnsembleDialect, EnsembleEngine
from gateway.triton.dialects.tokens import TokensDialect, TokensEngine
from gateway.triton.discovery import read_models
from gateway.triton.grpcio import open_channel
from gateway.triton.transport import Transport
from gateway.triton.transports import make_transport
from gateway.triton.triton_client import TritonClient
from tests.engine_requests import generation_request
from tests.stack import TRANSPORT

TEXT = "In the beginning"
Spoil = Callable[[Any], None]


class Spoiling:
    """A transport that changes requests on their way out; those of other ids, such as ``stop``, pass."""

    def __init__(self, transport: Transport, spoil: Spoil) -> None:
        self._transport = transport
        self._spoil = spoil
        self.name = transport.name

    async def prepare(self) -> None:
        await self._transport.prepare()

    def infer(self, request: Any, *, timeout: float, traceparent: str | None = None) -> Any:
        self._spoil(request)
        return self._transport.infer(request, timeout=timeout, traceparent=traceparent)

    async def close(self) -> None:
        """Nothing: the transport behind it belongs to the connection."""


class Bench:
    """Engines of both dialects on one Triton, without supervision.

    Args:
        url: of Triton.
        ids: of the prompt that ``ask`` takes, ``TEXT``.
        options: what the operator says of the engine.
    """

    def __init__(self, url: str, ids: tuple[int, ...], options: EngineOptions | None = None) -> None:
        self._url = url
        self._ids = ids
        self.options = options or EngineOptions()

    async def __aenter__(self) -> Bench:
        self.channel = open_channel(self._url)
        transport = make_transport(os.environ.get(TRANSPORT, "auto"), self._url, self.channel)  # type: ignore[arg-type]
        self.connection = Connection(transport)
        self.models = await read_models(TritonClient(self.channel), "ensemble")
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.connection.background.drain(10)
        await self.connection.transport.close()
        await self.channel.close()

    def engine(self, path: str, spoil: Spoil | None = None, timeout: float = 60.0) -> TokensEngine | EnsembleEngine:
        """An engine of a dialect; ``spoil`` changes its requests on their way out."""
        transport: Transport = self.connection.transport
        if spoil is not None:
            transport = Spoiling(transport, spoil)
        connection = Connection(transport, self.connection.background, timeout)
        return (TokensDialect().make if path == "tokens" else EnsembleDialect().make)(
            connection, self.models, "test", self.options
        )

    def ask(self, max_tokens: int = 4, **changes: Any) -> GenerationRequest:
        """A greedy request without an end id."""
        base: dict[str, Any] = {
            "request_id": uuid.uuid4().hex,
            "prompt": Prompt(text=TEXT, ids=self._ids),
            "params": SamplingParams(temperature=0.0),
        }
        return generation_request(max_tokens=max_tokens, **{**base, **changes})


async def collect(engine: Any, request: GenerationRequest) -> list[EngineChunk]:
    """All chunks of an answer."""
    return [chunk async for chunk in engine.generate(request)]


async def failure(engine: Any, request: GenerationRequest) -> EngineError:
    """The failure of a request that must fail."""
    with pytest.raises(EngineError) as error:
        await asyncio.wait_for(collect(engine, request), 30)
    return error.value


def prompt_ids(folder: Path) -> tuple[int, ...]:
    """Ids of ``TEXT``."""
    return tuple(Tokenizer.from_file(str(folder / "tokenizer.json")).encode(TEXT, add_special_tokens=False).ids)
