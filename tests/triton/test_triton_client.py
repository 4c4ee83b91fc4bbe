"""Triton's small calls."""

from __future__ import annotations

import pytest
from scripted_triton import ScriptedTriton

from gateway.generation.engine import EngineError, ErrorKind
from gateway.triton.grpcio import open_channel
from gateway.triton.triton_client import TritonClient


async def test_health_and_configuration() -> None:
    async with ScriptedTriton() as server, open_channel(f"grpc://{server.url}") as channel:
        client = TritonClient(channel)
        assert await client.server_live()
        assert await client.server_ready()
        assert await client.model_ready("ensemble")
        assert not await client.model_ready("no_such_model")
        assert (await client.model_config("tensorrt_llm")).model_transaction_policy.decoupled
        assert (await client.model_metadata("ensemble")).name == "ensemble"
        with pytest.raises(EngineError) as error:
            await client.model_config("no_such_model")
        assert error.value.kind is ErrorKind.UNAVAILABLE


async def test_nobody_there(unused_port: int) -> None:
    async with open_channel(f"127.0.0.1:{unused_port}") as channel:
        with pytest.raises(EngineError) as error:
            await TritonClient(channel).server_live()
    assert error.value.kind is ErrorKind.UNAVAILABLE
