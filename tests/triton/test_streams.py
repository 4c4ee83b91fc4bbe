"""Whole requests over a real gRPC connection: ends, errors, deadlines, cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, suppress
from typing import Any

import grpc
import pytest
from bls_exchange import BLS, upstream_configs
from scripted_triton import ask, inputs_of, models, play, response, text, tokens, without
from tritonclient.grpc import service_pb2

from gateway.generation.engine import Engine, EngineChunk, EngineError, ErrorKind
from gateway.generation.request import GenerationRequest
from gateway.triton.connection import Connection
from gateway.triton.dialects import ensemble as engine_module
from gateway.triton.dialects.ensemble import EnsembleDialect
from gateway.triton.dialects.tokens import TokensDialect, TokensEngine
from gateway.triton.grpcio import GrpcioTransport, open_channel
from gateway.triton.model_view import ModelView
from gateway.triton.pipeline import assemble
from tests.garbage import check_leaves_nothing
from tests.triton.calls import of


def engine_for(path: str, connection: Connection) -> Engine:
    return (TokensDialect().make if path == "tokens" else EnsembleDialect().make)(connection, models(), "test")


async def collect(engine: Engine, request: GenerationRequest | None = None) -> list[EngineChunk]:
    return [chunk async for chunk in engine.generate(request or ask())]


def error_message(words: str) -> Any:
    return service_pb2.ModelStreamInferResponse(error_message=words)


PATHS = pytest.mark.parametrize("path", ["tokens", "ensemble"])


@PATHS
@pytest.mark.parametrize(
    "script",
    [
        pytest.param([tokens(1), tokens(2), tokens(3, final=True)], id="on the last data"),
        pytest.param([tokens(1), tokens(2, 3), tokens(final=True)], id="on a response without tokens"),
        pytest.param([tokens(1, final=False), tokens(2, 3), response(final=True)], id="on a response without outputs"),
    ],
)
async def test_the_final_flag_ends_a_request(connect: Any, path: str, script: list[Any]) -> None:
    _, connection = await connect(lambda *_: play(*script))
    chunks = await collect(engine_for(path, connection))
    assert [token for chunk in chunks for token in chunk.ids] == [1, 2, 3]
    assert [chunk.final for chunk in chunks] == [False] * (len(chunks) - 1) + [True]


@PATHS
@pytest.mark.parametrize("last", [tokens(2, final=True), error_message("rejected")], ids=["answered", "rejected"])
async def test_a_request_that_ends_by_itself_is_not_cancelled(connect: Any, path: str, last: Any) -> None:
    """A cancel between the last response and the status can kill Triton 2.51."""
    ended = asyncio.Event()

    async def script(*_: Any) -> AsyncIterator[Any]:
        try:
            yield last
            await asyncio.sleep(0.1)  # while a cancel would arrive
        finally:
            ended.set()

    server, connection = await connect(script)
    with suppress(EngineError):
        await collect(engine_for(path, connection))
    await connection.background.drain(5)
    await asyncio.wait_for(ended.wait(), 10)
    assert server.requests[0].id == "r1"
    assert server.cancelled == []


async def test_a_whole_answer_of_bls_that_is_cut_is_left_to_its_end(connect: Any) -> None:
    """The final flag follows by itself: a cancel that meets it can kill Triton 2.51."""

    async def script(*_: Any) -> AsyncIterator[Any]:
        try:
            yield text(b"all of it")
            await asyncio.sleep(0.1)  # while a cancel would arrive
            yield response(final=True)
        finally:
            ended.set()

    ended = asyncio.Event()
    server, connection = await connect(script)
    views = {name: ModelView.of(config) for name, config in upstream_configs().items()}
    await leave(EnsembleDialect().make(connection, assemble(views[BLS], views), "test"), "closed")
    await asyncio.wait_for(ended.wait(), 10)
    await connection.background.drain(5)
    assert server.cancelled == []


async def test_a_whole_answer_of_an_ensemble_that_does_not_end_is_stopped(
    connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "END_TIMEOUT_S", 0.1)
    stopped = asyncio.Event()

    async def script(request: Any, _context: Any) -> AsyncIterator[Any]:
        if "stop" in inputs_of(request):
            stopped.set()
        else:
            yield text(b"all of it")
            await stopped.wait()
        yield response(final=True)

    server, connection = await connect(script)
    text_alone = without("ensemble", "output_ids", "sequence_length")
    await leave(EnsembleDialect().make(connection, models(ensemble=text_alone), "test"), "closed")
    await connection.background.drain(5)
    assert stopped.is_set()
    assert server.cancelled == []


@PATHS
async def test_requests_ask_for_a_final_marker_and_never_for_status_errors(connect: Any, path: str) -> None:
    server, connection = await connect(lambda *_: play(tokens(1, final=True)))
    await collect(engine_for(path, connection))
    assert server.requests[0].parameters["triton_enable_empty_final_response"].bool_param
    # tritonserver crashes after some errors that are reported as statuses.
    assert "triton_grpc_error" not in server.metadata[0]


@PATHS
@pytest.mark.parametrize("script", [[], [tokens(1)], [tokens(1, final=False), tokens(2)], [response(final=True)]])
async def test_an_end_without_a_final_answer_is_an_error(connect: Any, path: str, script: list[Any]) -> None:
    _, connection = await connect(lambda *_: play(*script))
    with pytest.raises(EngineError, check=of(ErrorKind.INTERNAL)):
        await collect(engine_for(path, connection))


@PATHS
async def test_an_error_inside_the_stream(connect: Any, path: str) -> None:
    words = "in ensemble 'ensemble', Prompt length (9) exceeds maximum input length (8)"
    _, connection = await connect(lambda *_: play(error_message(words)))
    with pytest.raises(EngineError, check=of(ErrorKind.CONTEXT_LENGTH)):
        await collect(engine_for(path, connection))


@PATHS
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (grpc.StatusCode.UNAVAILABLE, ErrorKind.UNAVAILABLE),
        (grpc.StatusCode.INTERNAL, ErrorKind.INTERNAL),
        (grpc.StatusCode.CANCELLED, ErrorKind.CANCELLED),
        (grpc.StatusCode.DEADLINE_EXCEEDED, ErrorKind.TIMEOUT),
    ],
)
async def test_a_status_after_some_tokens(connect: Any, path: str, status: Any, kind: ErrorKind) -> None:
    async def script(request: Any, context: Any) -> AsyncIterator[Any]:
        if "stop" in inputs_of(request):
            yield response(final=True)
            return
        yield tokens(1)
        await context.abort(status, "words of the backend")

    _, connection = await connect(script)
    chunks = engine_for(path, connection).generate(ask())
    assert list((await anext(chunks)).ids) == [1]
    with pytest.raises(EngineError) as error:
        await anext(chunks)
    assert error.value.kind is kind
    assert "backend" not in error.value.message


async def endless(request: Any, context: Any) -> AsyncIterator[Any]:
    while True:
        yield tokens(1)
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("how", ["closed", "task cancelled"])
async def test_leaving_a_direct_request_cancels_the_rpc(connect: Any, how: str) -> None:
    server, connection = await connect(endless)
    await leave(engine_for("tokens", connection), how)
    await server.until(lambda: server.cancelled == ["r1"])
    assert len(server.requests) == 1


@pytest.mark.parametrize(("how", "heeded"), [("closed", 1), ("task cancelled", 1), ("closed", 2)])
async def test_leaving_an_ensemble_request_stops_it_by_id(connect: Any, how: str, heeded: int) -> None:
    """A stop that came too early is repeated."""
    stops: list[str] = []

    async def script(request: Any, context: Any) -> AsyncIterator[Any]:
        if "stop" in inputs_of(request):
            stops.append(request.id)
        else:
            while len(stops) < heeded:
                yield tokens(1)
                await asyncio.sleep(0.01)
        yield tokens(final=True)

    server, connection = await connect(script)
    await leave(engine_for("ensemble", connection), how)
    await connection.background.drain(5)
    assert stops == ["r1"] * heeded
    assert {request.model_name for request in server.requests[1:]} == {"tensorrt_llm"}
    # It ended by itself: Triton would count a cancelled ensemble request as in flight.
    assert server.cancelled == []
    assert len(connection.background) == 0


@pytest.mark.parametrize("heard", [True, False], ids=["to no avail", "not heard"])
async def test_stops_are_sent_for_as_long_as_a_request_may_take(
    connect: Any, monkeypatch: pytest.MonkeyPatch, heard: bool
) -> None:
    monkeypatch.setattr(engine_module, "_RETRY_S", 0.01)
    monkeypatch.setattr(engine_module, "_MOST_RETRY_S", 0.02)
    stops: list[str] = []

    async def script(request: Any, context: Any) -> AsyncIterator[Any]:
        if "stop" not in inputs_of(request):
            async for message in endless(request, context):
                yield message
        stops.append(request.id)
        if not heard:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "")
        yield tokens(final=True)

    _, connection = await connect(script)
    connection.timeout = 0.5
    await leave(engine_for("ensemble", connection), "closed")
    _, pending = await asyncio.wait(connection.background._tasks, timeout=20)
    assert not pending
    assert len(stops) > 5
    assert set(stops) == {"r1"}


async def leave(engine: Engine, how: str) -> None:
    """Take one chunk, then go."""
    first = asyncio.Event()

    async def consume() -> None:
        async with aclosing(engine.generate(ask())) as chunks:
            async for _ in chunks:
                first.set()
                if how == "closed":
                    break

    task = asyncio.create_task(consume())
    await asyncio.wait_for(first.wait(), 5)
    if how == "task cancelled":
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    else:
        await task


async def test_an_unreachable_server_is_told_apart_and_reported(unused_port: int) -> None:
    async with open_channel(f"127.0.0.1:{unused_port}") as channel:
        reported: list[bool] = []
        connection = Connection(GrpcioTransport(channel), on_unavailable=lambda: reported.append(True))
        with pytest.raises(EngineError) as error:
            await collect(engine_for("tokens", connection))
    assert error.value.kind is ErrorKind.UNAVAILABLE
    assert reported == [True]


async def test_what_comes_after_the_final_response_is_nobodys(connect: Any) -> None:
    async def script(request: Any, context: Any) -> AsyncIterator[Any]:
        for number in (1, 2, 3, 4):
            yield tokens(number, final=False)
            await asyncio.sleep(0.01)
        yield tokens(5, final=True)
        await asyncio.sleep(0.02)
        for number in (6, 7):
            yield tokens(number, final=False)

    _, connection = await connect(script)
    order: list[int] = []

    def take(ids: Sequence[int]) -> int:
        order.extend(ids)
        return len(ids)

    engine = engine_for("tokens", connection)
    async for chunk in engine.generate_relayed(ask(), take, lambda _: None):
        order.extend(chunk.ids)
    assert order == [1, 2, 3, 4, 5]


async def push_through(engine: TokensEngine, request: GenerationRequest, *, take: bool) -> list[int]:
    """A request whose tokens are taken after the first chunk, where they can be."""
    taken: list[int] = []
    chunks: list[EngineChunk] = []

    def push(ids: Sequence[int]) -> int:
        taken.extend(ids if chunks and take else ())
        return len(ids) if chunks and take else 0

    async for chunk in engine.generate_relayed(request, push, lambda _: None):
        taken += chunk.ids
        chunks.append(chunk)
    assert chunks[-1].final
    return taken


@pytest.mark.parametrize("take", [True, False])
async def test_further_requests_are_answered_as_the_first(connect: Any, take: bool) -> None:
    """What one request has learned of its responses, the next knows: also the end of those that nobody parsed."""
    script = [tokens(1, final=False), tokens(2, final=False), tokens(3, final=False), response(final=True)]
    _, connection = await connect(lambda *_: play(*script))
    engine = engine_for("tokens", connection)
    assert isinstance(engine, TokensEngine)
    for number in range(3):
        assert await push_through(engine, ask(f"request-{number}"), take=take) == [1, 2, 3]


@PATHS
async def test_a_request_leaves_nothing_to_the_garbage_collector(connect: Any, path: str) -> None:
    _, connection = await connect(lambda *_: play(tokens(1), tokens(2), tokens(3, final=True)))
    engine = engine_for(path, connection)

    async def ask_once() -> None:
        if isinstance(engine, TokensEngine):
            await push_through(engine, ask(), take=True)
        else:
            await collect(engine)
        await connection.background.drain(5)

    await check_leaves_nothing(ask_once)


async def test_a_request_that_is_left_leaves_nothing_to_the_garbage_collector(connect: Any) -> None:
    async def endless(*_: Any) -> AsyncIterator[Any]:
        yield tokens(1)
        await asyncio.sleep(60)

    _, connection = await connect(endless)
    engine = engine_for("tokens", connection)

    async def ask_once() -> None:
        async with aclosing(engine.generate_relayed(ask(), lambda _: 0, lambda _: None)) as chunks:
            await anext(chunks)

    await check_leaves_nothing(ask_once)
