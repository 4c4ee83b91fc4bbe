"""Both transports against a well-behaved gRPC server: the same answers, errors, limits and recoveries."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import grpc
import pytest
from scripted_triton import ScriptedTriton, forever, ints, play, response, string, tokens
from tritonclient.grpc import service_pb2

from gateway.triton.grpcio import GrpcioTransport, open_channel
from gateway.triton.h2 import H2Transport
from gateway.triton.h2.limits import Limits
from gateway.triton.transports import TransportName, make_transport
from tests.triton.calls import ask, begun, connected, eventually, failure, read_all


def number(message: Any) -> int:
    message = service_pb2.ModelStreamInferResponse.FromString(message) if isinstance(message, bytes) else message
    return int(struct.unpack_from("<i", message.infer_response.raw_output_contents[0])[0])


async def test_answers_come_whole_and_in_order(transport_name) -> None:
    async with (
        ScriptedTriton(lambda *_: play(*(tokens(n) for n in range(500)))) as server,
        connected(transport_name, server.url) as transport,
    ):
        assert [number(m) for m in await read_all(transport.infer(ask(), timeout=20))] == list(range(500))


async def test_what_travels_is_what_was_asked(transport_name) -> None:
    async with ScriptedTriton(lambda *_: play(tokens(1))) as server, connected(transport_name, server.url) as transport:
        await read_all(transport.infer(ask("r1", b"\x00\xff" * 100), timeout=20))
        assert server.requests == [ask("r1", b"\x00\xff" * 100)]


async def test_the_context_of_a_trace_goes_with_its_own_request_alone(transport_name) -> None:
    traced = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with ScriptedTriton(lambda *_: play(tokens(1))) as server, connected(transport_name, server.url) as transport:
        for traceparent in (None, None, traced, None, traced[:-2] + "00"):
            await read_all(transport.infer(ask(), timeout=20, traceparent=traceparent))
        assert [sent.get("traceparent") for sent in server.metadata] == [None, None, traced, None, traced[:-2] + "00"]
        assert not any("tracestate" in sent for sent in server.metadata)


@pytest.mark.parametrize("status", [code for code in grpc.StatusCode if code is not grpc.StatusCode.OK])
@pytest.mark.parametrize("before", [0, 3])
async def test_statuses_arrive_with_their_words(transport_name, status: Any, before: int) -> None:
    words = "größer als 100% 你好\n\tat line 1 %zz"

    async def script(_request: Any, context: Any) -> AsyncIterator[Any]:
        for n in range(before):
            yield tokens(n)
        await context.abort(status, words)

    async with ScriptedTriton(script) as server, connected(transport_name, server.url) as transport:
        call = transport.infer(ask(), timeout=20)
        assert [number(await call.read()) for _ in range(before)] == list(range(before))
        error = await failure(call)
        assert (error.status, error.text) == (status.name, words)
        assert (await failure(call)).status == status.name  # and stays so


async def test_a_cancel_after_the_end_changes_nothing(transport_name) -> None:
    async with ScriptedTriton(lambda *_: play(tokens(1))) as server, connected(transport_name, server.url) as transport:
        call = transport.infer(ask(), timeout=20)
        await read_all(call)
        call.cancel()
        assert await call.read() is None
        assert server.cancelled == []


async def test_a_deadline_ends_both_sides(transport_name) -> None:
    left: list[float] = []

    async def script(_request: Any, context: Any) -> AsyncIterator[Any]:
        left.append(context.time_remaining())
        yield tokens(0)
        await asyncio.Event().wait()

    async with ScriptedTriton(script) as server, connected(transport_name, server.url) as transport:
        call = transport.infer(ask("late"), timeout=0.5)
        assert (await failure(call)).status == "DEADLINE_EXCEEDED"
        assert 0 < left[0] < 0.6  # gRPC rounds it up
        await server.until(lambda: server.cancelled == ["late"])


async def test_a_prompt_of_megabytes(transport_name) -> None:
    prompt = bytes(range(256)) * 20_000
    options = [("grpc.max_receive_message_length", -1)]
    async with (
        ScriptedTriton(lambda *_: play(tokens(1)), options=options) as server,
        connected(transport_name, server.url) as transport,
    ):
        calls = [transport.infer(ask(f"r{n}", prompt if n % 2 else b"short"), timeout=20) for n in range(4)]
        assert [len(await read_all(call)) for call in calls] == [1, 1, 1, 1]
        arrived = {request.id: request.raw_input_contents[0] for request in server.requests}
        assert arrived == {"r0": b"short", "r1": prompt, "r2": b"short", "r3": prompt}


async def test_answers_of_megabytes(transport_name) -> None:
    sizes = [3, 9_000_000, 70_000, 33_000, 5_000_000, 1]
    big = [response(text_output=string(bytes([n]) * size)) for n, size in enumerate(sizes)]
    async with ScriptedTriton(lambda *_: play(*big)) as server, connected(transport_name, server.url) as transport:
        calls = [transport.infer(ask(), timeout=30) for _ in range(3)]
        for answers in await asyncio.gather(*(read_all(call) for call in calls)):
            assert answers == big


async def test_a_slow_reader_slows_its_server_and_nobody_else(transport_name) -> None:
    total, size = 1_000, 32_000
    made = 0

    async def script(request: Any, _context: Any) -> AsyncIterator[Any]:
        nonlocal made
        if request.id != "slow":
            for n in range(1_000):
                yield tokens(n)
            return
        for n in range(total):
            made += 1
            yield response(output_ids=ints(n, *[0] * (size // 4)))

    async with ScriptedTriton(script) as server, connected(transport_name, server.url) as transport:
        slow = transport.infer(ask("slow"), timeout=60)
        assert number(await slow.read()) == 0
        for _ in range(2):
            assert len(await read_all(transport.infer(ask("other"), timeout=60))) == 1_000
        # The rest waits in the server, but for what fits the windows and buffers of both sides.
        assert made * size < total * size / 4
        assert [number(m) for m in await read_all(slow)] == list(range(1, total))


async def test_many_streams_keep_apart(transport_name) -> None:
    async def script(request: Any, _context: Any) -> AsyncIterator[Any]:
        for n in range(20):
            yield tokens(int(request.id) * 1000 + n)

    async with ScriptedTriton(script) as server, connected(transport_name, server.url) as transport:
        calls = [transport.infer(ask(str(n)), timeout=30) for n in range(200)]
        results = await asyncio.gather(*(read_all(call) for call in calls))
        assert [[number(m) for m in result] for result in results] == [
            [n * 1000 + k for k in range(20)] for n in range(200)
        ]


async def test_a_server_that_comes_back_is_used_again(transport_name) -> None:
    async with ScriptedTriton(forever) as server, connected(transport_name, server.url) as transport:
        call = await begun(transport, "r1")
        await server.stop()
        assert (await failure(call)).status in ("UNAVAILABLE", "CANCELLED")
        assert (await failure(transport.infer(ask(), timeout=20))).status == "UNAVAILABLE"
        server.script = lambda *_: play(tokens(1))
        await server.start()
        assert len(await eventually(transport, "UNAVAILABLE")) == 1


async def test_a_server_that_goes_finishes_what_runs(transport_name) -> None:
    go_on = asyncio.Event()

    async def script(_request: Any, _context: Any) -> AsyncIterator[Any]:
        yield tokens(0)
        await go_on.wait()
        for n in range(1, 50):
            yield tokens(n)

    async with ScriptedTriton(script) as old, connected(transport_name, old.url) as transport:
        call = await begun(transport, "r1")
        stopping = asyncio.create_task(old.stop(10))
        new = await start_when_free(ScriptedTriton(lambda *_: play(tokens(7)), port=old.port))
        assert [number(m) for m in await eventually(transport, "UNAVAILABLE")] == [7]
        go_on.set()
        assert [number(m) for m in await read_all(call)] == list(range(1, 50))
        await stopping
        await new.stop()


async def start_when_free(server: ScriptedTriton) -> ScriptedTriton:
    """Start a server whose port another one is about to leave."""
    for _ in range(200):
        with suppress(RuntimeError):
            await server.start()
            return server
        await asyncio.sleep(0.05)
    raise AssertionError("it was tried in vain for ten seconds")


async def test_a_server_that_compresses(transport_name) -> None:
    text = response(text_output=string(b"a" * 10_000))
    async with (
        ScriptedTriton(lambda *_: play(text, text), compression=grpc.Compression.Gzip) as server,
        connected(transport_name, server.url) as transport,
    ):
        call = transport.infer(ask(), timeout=20)
        if transport_name == "grpcio":
            assert await read_all(call) == [text, text]
        else:  # it did not say that it takes them
            error = await failure(call)
            assert error.status == "INTERNAL"
            assert "compressed" in error.text


@pytest.mark.parametrize("name", ["grpcio", "h2"])
async def test_a_message_beyond_the_limit_ends_its_own_request_only(name: str) -> None:
    limit = 200_000

    async def script(request: Any, _context: Any) -> AsyncIterator[Any]:
        yield tokens(1)
        yield response(text_output=string(b"a" * (limit if request.id == "big" else 100)))
        yield tokens(2)

    async with ScriptedTriton(script) as server, open_channel(server.url, max_response_bytes=limit) as channel:
        transport = GrpcioTransport(channel) if name == "grpcio" else H2Transport(server.url, Limits(message=limit))
        calls = [transport.infer(ask(each), timeout=20) for each in ("big", "small")]
        assert (await failure(calls[0])).status == "RESOURCE_EXHAUSTED"
        assert len(await read_all(calls[1])) == 3
        await transport.close()


async def test_closing_the_gateways_side_ends_what_runs(transport_name: TransportName) -> None:
    async with ScriptedTriton(forever) as server, open_channel(server.url) as channel:
        transport = make_transport(transport_name, server.url, channel)
        call = await begun(transport, "r1")
        reader = asyncio.create_task(failure(call))
        await asyncio.sleep(0)
        await transport.close()
        await channel.close()
        assert (await reader).status == "CANCELLED"
        await server.until(lambda: server.cancelled == ["r1"])
