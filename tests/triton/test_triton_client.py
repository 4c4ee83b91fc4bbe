"""Triton's small calls."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from raw_http2 import DATA, END_STREAM, Peer, RawServer, frame, message
from scripted_triton import ScriptedTriton

from gateway.generation.engine import EngineError, ErrorKind
from gateway.triton import TritonBackend
from gateway.triton.grpcio import open_channel
from gateway.triton.triton_client import TritonClient
from tests.triton.calls import of
from tests.waiting import until


async def test_health_and_configuration() -> None:
    async with ScriptedTriton() as server, open_channel(f"grpc://{server.url}") as channel:
        client = TritonClient(channel)
        assert await client.server_live()
        assert await client.model_ready("ensemble")
        assert not await client.model_ready("no_such_model")
        assert (await client.model_config("tensorrt_llm")).model_transaction_policy.decoupled
        with pytest.raises(EngineError, check=of(ErrorKind.UNAVAILABLE)):
            await client.model_config("no_such_model")


async def without_trailers(peer: Peer, stream: int) -> None:
    peer.send(peer.headers(stream), frame(DATA, END_STREAM, stream, message(b"\x08\x01")))


async def test_a_proxy_that_drops_trailers_is_named_until_it_is_gone() -> None:
    async with RawServer(without_trailers) as proxy, TritonBackend(proxy.url, "ensemble") as backend:
        await until(lambda: "drops HTTP/2 trailers" in backend.status.reason)
        assert backend.status.reason.endswith(f"({proxy.url})")
        with pytest.raises(EngineError, check=of(ErrorKind.UNAVAILABLE)):
            _ = backend.engine
        port = int(proxy.url.rpartition(":")[2])
        proxy.close()
        async with ScriptedTriton(port=port):
            await backend.wait_ready(10)


async def test_a_server_that_is_no_triton_is_named() -> None:
    """Another gRPC server, and Triton's HTTP port, which ends the connection."""

    async def hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    other = grpc.aio.server()
    port = other.add_insecure_port("127.0.0.1:0")
    await other.start()
    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
        for each, words in ((port, " (UNIMPLEMENTED)"), (server.sockets[0].getsockname()[1], "")):
            async with TritonBackend(f"127.0.0.1:{each}", "ensemble") as backend:
                said = f"does not respond like Triton's gRPC port{words}"
                await until(lambda: said in backend.status.reason)  # noqa: B023
                assert backend.condition.state == "unreachable"
    await other.stop(None)
