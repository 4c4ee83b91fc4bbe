"""Transports, requests to them, and their calls read to the end."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tritonclient.grpc import service_pb2

from gateway.generation.engine import EngineError, ErrorKind
from gateway.triton.grpcio import open_channel
from gateway.triton.transport import InferCall, Transport, TransportError
from gateway.triton.transports import TransportName, make_transport


@asynccontextmanager
async def connected(name: TransportName, url: str) -> AsyncIterator[Transport]:
    """A transport to an address, which takes responses of up to 10 MB."""
    async with open_channel(url, max_response_bytes=10_000_000) as channel:
        transport = make_transport(name, url, channel)
        try:
            yield transport
        finally:
            await transport.close()


def ask(name: str = "r1", *content: bytes) -> Any:
    """A request with an id and for a model of the same name."""
    return service_pb2.ModelInferRequest(model_name=name, id=name, raw_input_contents=content)


def of(kind: ErrorKind) -> Callable[[EngineError], bool]:
    """Whether an error is of a kind, for ``pytest.raises``."""
    return lambda error: error.kind is kind


async def read_all(call: InferCall) -> list[Any]:
    """The responses of a call."""
    answers = []
    while (message := await asyncio.wait_for(call.read(), 30)) is not None:
        answers.append(service_pb2.ModelStreamInferResponse.FromString(message))
    return answers


async def begun(transport: Transport, name: str = "bystander") -> InferCall:
    """A call whose first response has come."""
    call = transport.infer(ask(name), timeout=20)
    assert await call.read() is not None
    return call


async def failure(call: InferCall) -> TransportError:
    """The error by which a call ends."""
    with pytest.raises(TransportError) as error:
        await read_all(call)
    return error.value


async def eventually(transport: Transport, *failures: str, name: str = "r1") -> list[Any]:
    """The responses to a request that does not fail; before it some may, by these statuses."""
    for _ in range(200):
        try:
            return await read_all(transport.infer(ask(name), timeout=20))
        except TransportError as error:  # noqa: PERF203
            assert error.status in failures  # noqa: PT017
            await asyncio.sleep(0.05)
    raise AssertionError("it was tried in vain for ten seconds")


def rejected_by_page(title: str, start: str = "Rejected") -> set[str]:
    """The parameters that a paragraph of docs/reference/served.md names, by its section and its first words."""
    page = (Path(__file__).parents[2] / "docs" / "reference" / "served.md").read_text()
    section = page.partition(f"## {title}\n")[2].partition("\n## ")[0]
    return set(re.findall(r"`(\w+)`", section.split(f"**{start}**")[-1].split("\n\n")[0]))
