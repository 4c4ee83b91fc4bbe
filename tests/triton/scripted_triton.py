"""A gRPC server of the test process that plays Triton: configurations as given, responses as scripted."""

from __future__ import annotations

import asyncio
import functools
import struct
from collections.abc import AsyncIterator, Callable, Collection
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2, service_pb2, service_pb2_grpc

from gateway.generation import SamplingParams
from gateway.generation.request import GenerationRequest
from gateway.text.prompt.prompt import Prompt
from gateway.triton.model_view import ModelView
from gateway.triton.pipeline import Models, read_pipeline
from tests.engine_requests import generation_request

REPOSITORY = Path(__file__).parents[2] / "triton_repo"

Script = Callable[[Any, Any], AsyncIterator[Any]]


def stock_config(model: str, **variables: str) -> Any:
    """The model's configuration in this project's repository, some of its variables filled in."""
    text = (REPOSITORY / model / "config.pbtxt").read_text()
    for name, value in variables.items():
        text = text.replace(f"${{{name}}}", value)
    config = model_config_pb2.ModelConfig()
    config.CopyFrom(_parsed(text))
    return config


@functools.cache
def _parsed(text: str) -> Any:
    return text_format.Parse(text, model_config_pb2.ModelConfig())  # in Python, which takes milliseconds


def configured(model: str, **parameters: str) -> Any:
    """The model's configuration with other parameters."""
    config = stock_config(model)
    for name, value in parameters.items():
        config.parameters[name].string_value = value
    return config


def stock_configs() -> dict[str, Any]:
    """The configurations of the ensemble and its steps."""
    return {name: stock_config(name) for name in ("ensemble", "preprocessing", "tensorrt_llm", "postprocessing")}


def resnet(name: str = "resnet") -> Any:
    """The configuration of a model of another kind."""
    config = model_config_pb2.ModelConfig(name=name)
    config.input.add(name="image")
    config.output.add(name="labels")
    return config


def without(model: str, *names: str) -> Any:
    """The model's configuration without some of its inputs and outputs."""
    config = stock_config(model)
    drop_tensors(config, names)
    return config


def drop_tensors(config: Any, names: Collection[str]) -> None:
    """Leave out some of a configuration's inputs and outputs."""
    for tensors in (config.input, config.output):
        kept = [tensor for tensor in tensors if tensor.name not in names]
        del tensors[:]
        tensors.extend(kept)


def models(**changed: Any) -> Models:
    """The ensemble and its steps as the gateway reads them, some with other configurations."""
    views = {name: ModelView.of(config) for name, config in (stock_configs() | changed).items()}
    pipeline = read_pipeline(views["ensemble"])
    return Models(views["ensemble"], views["tensorrt_llm"], views["preprocessing"], pipeline, tuple(views))


class NoTransport:
    """For engines that only encode."""

    def infer(self, *_args: Any, **_options: Any) -> Any:
        raise AssertionError("nothing is sent here")


def ask(request_id: str = "r1", **changes: Any) -> GenerationRequest:
    """A greedy request for a short prompt."""
    base: dict[str, Any] = {
        "prompt": Prompt(text="one two", ids=(5, 6)),
        "max_tokens": 8,
        "params": SamplingParams(temperature=0.0),
        "end_ids": (2,),
        "end_texts": ("</s>",),
    }
    return generation_request(request_id, **{**base, **changes})


def response(*, final: bool | None = None, **tensors: tuple[str, list[int], bytes]) -> Any:
    """A response from (datatype, shape, content) per output."""
    message = service_pb2.ModelStreamInferResponse()
    for name, (datatype, shape, raw) in tensors.items():
        message.infer_response.outputs.add(name=name, datatype=datatype, shape=shape)
        message.infer_response.raw_output_contents.append(raw)
    if final is not None:
        message.infer_response.parameters["triton_final_response"].bool_param = final
    return message


def ints(*values: int) -> tuple[str, list[int], bytes]:
    return "INT32", [1, 1, len(values)], struct.pack(f"<{len(values)}i", *values)


def floats(*values: float) -> tuple[str, list[int], bytes]:
    return "FP32", [1, 1, len(values)], struct.pack(f"<{len(values)}f", *values)


def string(text: bytes) -> tuple[str, list[int], bytes]:
    return "BYTES", [1], struct.pack("<I", len(text)) + text


def tokens(*ids: int, final: bool | None = None, **more: tuple[str, list[int], bytes]) -> Any:
    """A response with new token ids, as the engine model sends it."""
    return response(final=final, output_ids=ints(*ids), sequence_length=ints(len(ids)), **more)


def text(words: bytes, *, final: bool | None = None, **more: tuple[str, list[int], bytes]) -> Any:
    """A response with new text, as a text-only ensemble sends it."""
    return response(final=final, text_output=string(words), **more)


def inputs_of(request: Any) -> dict[str, tuple[str, list[int], bytes]]:
    """The inputs of a request as (datatype, shape, content)."""
    return {
        tensor.name: (tensor.datatype, list(tensor.shape), raw)
        for tensor, raw in zip(request.inputs, request.raw_input_contents, strict=True)
    }


async def play(*messages: Any) -> AsyncIterator[Any]:
    for message in messages:
        yield message


async def forever(_request: Any, _context: Any) -> AsyncIterator[Any]:
    """A script of one response and no end."""
    yield tokens(0)
    await asyncio.Event().wait()


class _GenericOnly:
    """Registers the handlers of a servicer behind those that a server has already."""

    def __init__(self, server: Any) -> None:
        self.add_generic_rpc_handlers = server.add_generic_rpc_handlers

    def add_registered_method_handlers(self, *_: object) -> None:
        """Do without: they would come first."""


class ScriptedTriton(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc] # it has no types
    """Answers health and configuration from ``configs``, inference from ``script``; an async context manager.

    Attributes:
        configs: loaded models.
        script: makes the responses of a request.
        requests: every inference request received.
        metadata: their metadata.
        cancelled: ids of requests that ended by the client's cancellation.
        checks: health checks so far.
        slow_checks: how many of the next ones are never answered.
        garbled_checks: how many of the next ones are answered with bytes that cannot be decoded, as by a broken proxy.
        unloaded: models of the repository that are not loaded, with what the index says of them.
        index: whether it answers requests for the index.
        completed: returns how many requests of any client it has completed; None: it does not say.
    """

    def __init__(
        self,
        script: Script | None = None,
        configs: dict[str, Any] | None = None,
        port: int = 0,
        credentials: grpc.ServerCredentials | None = None,
        **server: Any,
    ) -> None:
        self.script: Script = script or (lambda *_: play(tokens(7, final=True)))
        self.configs = stock_configs() if configs is None else configs
        self.requests: list[Any] = []
        self.metadata: list[dict[str, str]] = []
        self.cancelled: list[str] = []
        self.checks = self.slow_checks = self.garbled_checks = 0
        self.unloaded: dict[str, str] = {}
        self.index = True
        self.completed: Callable[[], int] | None = None
        self._changed = asyncio.Event()
        self._server: Any = None
        self._settings: dict[str, Any] = server
        self._credentials = credentials
        self.port = port

    @property
    def url(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def __aenter__(self) -> ScriptedTriton:
        await self.start()
        return self

    async def __aexit__(self, *args: object) -> None:
        await self.stop()

    async def start(self) -> None:
        settings = dict(self._settings)
        options = [("grpc.so_reuseport", 0), *settings.pop("options", [])]
        self._server = grpc.aio.server(options=options, **settings)
        ready = grpc.unary_unary_rpc_method_handler(
            self._model_ready, service_pb2.ModelReadyRequest.FromString, response_serializer=bytes
        )
        handlers = grpc.method_handlers_generic_handler("inference.GRPCInferenceService", {"ModelReady": ready})
        self._server.add_generic_rpc_handlers((handlers,))  # the first that has a method serves it
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(self, _GenericOnly(self._server))
        address = f"127.0.0.1:{self.port}"
        if self._credentials is None:
            self.port = self._server.add_insecure_port(address)
        else:
            self.port = self._server.add_secure_port(address, self._credentials)
        await self._server.start()

    async def stop(self, grace: float | None = None) -> None:
        await self._server.stop(grace)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something about the received requests holds."""
        while not holds():
            self._changed.clear()
            await asyncio.wait_for(self._changed.wait(), 10)

    def _note(self, notes: list[Any], note: Any) -> None:
        """Note without waiting for anything: a cancelled handler may be cancelled again."""
        notes.append(note)
        self._changed.set()

    async def ServerLive(self, _request: Any, _context: Any) -> Any:  # noqa: N802
        return service_pb2.ServerLiveResponse(live=True)

    async def ServerReady(self, _request: Any, _context: Any) -> Any:  # noqa: N802
        return service_pb2.ServerReadyResponse(ready=True)

    async def _model_ready(self, request: Any, context: Any) -> bytes:
        answer = await self.ModelReady(request, context)
        if self.garbled_checks > 0:
            self.garbled_checks -= 1
            return b"\x0f\x01"
        return bytes(answer.SerializeToString())

    async def ModelReady(self, request: Any, _context: Any) -> Any:  # noqa: N802
        self.checks += 1
        if self.slow_checks > 0:
            self.slow_checks -= 1
            await asyncio.Event().wait()
        return service_pb2.ModelReadyResponse(ready=request.name in self.configs)

    async def ModelConfig(self, request: Any, context: Any) -> Any:  # noqa: N802
        if request.name not in self.configs:
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT, f"Request for unknown model: '{request.name}' is not found"
            )
        return service_pb2.ModelConfigResponse(config=self.configs[request.name])

    async def ModelStatistics(self, request: Any, context: Any) -> Any:  # noqa: N802
        if self.completed is None:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "")
            return None
        response = service_pb2.ModelStatisticsResponse()
        response.model_stats.add(name=request.name, version="1").inference_stats.success.count = self.completed()
        return response

    async def RepositoryIndex(self, _request: Any, context: Any) -> Any:  # noqa: N802
        if not self.index:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "This protocol is restricted, expecting header 'x'")
        response = service_pb2.RepositoryIndexResponse()
        for name in self.configs:
            response.models.add(name=name, version="1", state="READY")
        for name, reason in self.unloaded.items():
            response.models.add(name=name, version="1", state="UNAVAILABLE", reason=reason)
        return response

    async def ModelMetadata(self, request: Any, _context: Any) -> Any:  # noqa: N802
        return service_pb2.ModelMetadataResponse(name=request.name, platform="scripted")

    async def ModelStreamInfer(self, request_iterator: Any, context: Any) -> Any:  # noqa: N802
        async for request in request_iterator:
            self.metadata.append({key: str(value) for key, value in context.invocation_metadata()})
            self._note(self.requests, request)
            try:
                async for message in self.script(request, context):
                    yield message
            except (asyncio.CancelledError, GeneratorExit):  # the latter while gRPC writes
                self._note(self.cancelled, request.id)
                raise
