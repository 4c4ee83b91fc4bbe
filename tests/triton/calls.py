"""Requests to transports, and their calls read to the end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tritonclient.grpc import service_pb2

from gateway.triton.transport import InferCall, Transport, TransportError


def ask(name: str = "r1", *content: bytes) -> Any:
    """A request with an id and for a model of the same name."""
    return service_pb2.ModelInferRequest(model_name=name, id=name, raw_input_contents=content)


async def read_all(call: InferCall) -> list[Any]:
    """The responses of a call."""
    answers = []
    while (message := await asyncio.wait_for(call.read(), 30)) is not None:
        answers.append(service_pb2.ModelStreamInferResponse.FromString(message))
    return answers


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
