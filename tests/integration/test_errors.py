"""Every row of the error table that can be caused here, caused on the real Triton: its kind is what clients are told.

Requests that the gateway itself would never send are its own, spoiled on their way out.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from bench import TEXT, Bench, Spoil, collect, failure, prompt_ids
from tritonclient.grpc import service_pb2, service_pb2_grpc

from gateway.generation.engine import EngineError, ErrorKind
from gateway.text.prompt.prompt import Prompt
from gateway.triton.dialects.ensemble import StopSender
from gateway.triton.triton_client import TritonClient
from gateway_ops.local_stack.tritonserver import TritonServer
from tests.tiny_model import write_tiny_model

K = ErrorKind
PATHS = pytest.mark.parametrize("path", ["tokens", "ensemble"])
SLOW_VOCABULARY = 100_000  # so many logits to sort that a step takes ten milliseconds


@pytest.fixture
async def bench(triton: TritonServer, tiny_model_dir: Path) -> AsyncIterator[Bench]:
    async with Bench(triton.grpc_url, prompt_ids(tiny_model_dir)) as running:
        yield running


@pytest.fixture(scope="module")
def fragile(chat_repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TritonServer, Path]]:
    """One slot, one place in the queue, slow steps, models that may be unloaded; it may be stopped and killed."""
    folder = tmp_path_factory.mktemp("fragile")
    write_tiny_model(folder / "model", vocab=SLOW_VOCABULARY, max_position_embeddings=1024)
    limits = {"ENGINE_MAX_BATCH_SIZE": "1", "ENGINE_MAX_QUEUE_SIZE": "1", "ENGINE_BLAS_THREADS": "1"}
    explicit = ("--model-control-mode=explicit", "--load-model=*")
    server = TritonServer(
        chat_repository, model_dir=folder / "model", env=limits, log_path=folder / "triton.log", options=explicit
    )
    yield server, folder / "model"
    server.kill()


@pytest.fixture
async def slow_bench(fragile: tuple[TritonServer, Path]) -> AsyncIterator[Bench]:
    server, folder = fragile
    if not server.running:
        server.start()
    server.wait_ready()
    async with Bench(server.grpc_url, prompt_ids(folder)) as running:
        yield running


def _find(request: Any, name: str) -> int:
    return next(place for place, tensor in enumerate(request.inputs) if tensor.name == name)


def drop(*names: str) -> Spoil:
    def spoil(request: Any) -> None:
        for name in names:
            if name in [tensor.name for tensor in request.inputs]:
                place = _find(request, name)
                del request.inputs[place], request.raw_input_contents[place]

    return spoil


def put(name: str, datatype: str, shape: list[int], raw: bytes) -> Spoil:
    def spoil(request: Any) -> None:
        if name in [tensor.name for tensor in request.inputs]:
            drop(name)(request)
        request.inputs.add(name=name, datatype=datatype, shape=shape)
        request.raw_input_contents.append(raw)

    return spoil


def rename(request: Any) -> None:
    request.model_name = "no_such_model"


def want(output: str) -> Spoil:
    return lambda request: request.outputs.add(name=output)


def string(text: bytes) -> bytes:
    return struct.pack("<I", len(text)) + text


SPOILED = [
    pytest.param(rename, K.UNAVAILABLE, id="unknown model"),
    pytest.param(put("seed", "FP32", [1, 1], b"\0" * 4), K.INTERNAL, id="wrong type"),
    pytest.param(put("seed", "UINT64", [1, 2], b"\0" * 16), K.INTERNAL, id="wrong shape"),
    pytest.param(put("seed", "UINT64", [1, 1], b"\0" * 4), K.INTERNAL, id="content too short"),
    pytest.param(drop("max_tokens", "request_output_len"), K.INTERNAL, id="missing input"),
    pytest.param(put("no_such_input", "INT32", [1, 1], b"\0" * 4), K.INTERNAL, id="unknown input"),
    pytest.param(want("no_such_output"), K.INTERNAL, id="unknown output"),
    pytest.param(put("beam_width", "INT32", [1, 1], struct.pack("<i", 4)), K.INVALID_REQUEST, id="beam width"),
    pytest.param(put("guided_decoding_guide_type", "BYTES", [1, 1], string(b"regex")), K.INTERNAL, id="half a guide"),
    pytest.param(put("end_id", "INT32", [1, 1], struct.pack("<i", 2**30)), K.INTERNAL, id="end id out of range"),
    pytest.param(
        put("lora_task_id", "UINT64", [1, 1], struct.pack("<Q", 7)), K.INVALID_REQUEST, id="adapter that is not there"
    ),
]


@PATHS
@pytest.mark.parametrize(("spoil", "kind"), SPOILED)
async def test_a_request_that_triton_or_the_engine_refuses(bench: Bench, path: str, spoil: Spoil, kind: K) -> None:
    error = await failure(bench.engine(path, spoil), bench.ask())
    assert error.kind is kind
    assert error.message != "The engine failed to process the request."  # what no row knows
    assert "model '" not in error.message


@PATHS
async def test_a_prompt_longer_than_the_context(bench: Bench, path: str) -> None:
    ids = bench.ask().prompt.ids * 1100
    error = await failure(bench.engine(path), bench.ask(prompt=Prompt(" ".join([TEXT] * 1100), ids)))
    assert error.kind is K.CONTEXT_LENGTH


@PATHS
async def test_an_id_that_is_in_flight(bench: Bench, path: str) -> None:
    """The second is refused, the first goes on."""
    first = bench.ask(1500)
    async with aclosing(bench.engine(path).generate(first)) as chunks:
        await anext(chunks)
        error = await failure(bench.engine(path), bench.ask(request_id=first.id))
        assert error.kind is K.INTERNAL
        assert (await anext(chunks)).ids


@PATHS
async def test_a_full_queue(slow_bench: Bench, path: str) -> None:
    outcomes = await asyncio.gather(
        *(collect(slow_bench.engine(path), slow_bench.ask(32)) for _ in range(6)), return_exceptions=True
    )
    errors = [outcome for outcome in outcomes if isinstance(outcome, EngineError)]
    assert {error.kind for error in errors} == {K.QUEUE_FULL}
    assert len(errors) < len(outcomes)


@PATHS
async def test_a_deadline(slow_bench: Bench, path: str) -> None:
    error = await failure(slow_bench.engine(path, timeout=0.3), slow_bench.ask(900))
    assert error.kind is K.TIMEOUT


@PATHS
async def test_a_request_that_someone_else_cancels(slow_bench: Bench, path: str) -> None:
    asked = slow_bench.ask(900)
    engine = slow_bench.engine(path)
    async with aclosing(engine.generate(asked)) as chunks:
        await anext(chunks)
        assert slow_bench.models.engine is not None
        stopper = StopSender(slow_bench.connection, slow_bench.models.engine)
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        stopping = asyncio.ensure_future(stopper.stop(asked.id, ended))  # type: ignore[arg-type]
        rest = [chunk async for chunk in chunks]
        ended.set_result(None)
        await stopping
    assert rest[-1].failure is not None
    assert rest[-1].failure.kind is K.CANCELLED


@PATHS
async def test_an_unloaded_model(fragile: tuple[TritonServer, Path], slow_bench: Bench, path: str) -> None:
    stub: Any = service_pb2_grpc.GRPCInferenceServiceStub(slow_bench.channel)
    engine = slow_bench.engine(path)
    await stub.RepositoryModelUnload(service_pb2.RepositoryModelUnloadRequest(model_name="tensorrt_llm"))
    client = TritonClient(slow_bench.channel)
    while await client.model_ready("tensorrt_llm"):  # noqa: ASYNC110 - Triton does not tell by itself
        await asyncio.sleep(0.02)
    error = await failure(engine, slow_bench.ask())
    assert error.kind is K.UNAVAILABLE
    await stub.RepositoryModelLoad(service_pb2.RepositoryModelLoadRequest(model_name="tensorrt_llm"))
    await stub.RepositoryModelLoad(service_pb2.RepositoryModelLoadRequest(model_name="ensemble"))
    assert await collect(engine, slow_bench.ask())
