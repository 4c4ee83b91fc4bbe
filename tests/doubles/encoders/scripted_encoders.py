"""A gRPC server of the test's process that answers as a Triton with doubles of encoders, without a process for each."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from google.protobuf import json_format, text_format
from tritonclient.grpc import model_config_pb2, service_pb2, service_pb2_grpc
from tritonclient.utils import deserialize_bytes_tensor

from tests.doubles.encoders.encoder_double import TYPES, EncoderDouble

_WIRE = {kind: "BYTES" if kind == "TYPE_STRING" else kind.removeprefix("TYPE_") for kind in TYPES}
_AT_A_TIME = 64


class ScriptedEncoders(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc] # it has no types
    """The models of a repository; a request that its configuration does not allow is an error, as Triton has it.

    Args:
        repository: of models of `encoder_model`, and ensembles of one of them.
        journal: as of `EncoderDouble`.
        mode: as of `EncoderDouble`.

    Attributes:
        url: ``host:port``.
    """

    def __init__(self, repository: Path, journal: Path, mode: Path) -> None:
        self._configs, self._doubles = {}, {}
        for file in repository.glob("*/config.pbtxt"):
            name = file.parent.name
            config = text_format.Parse(file.read_text(), model_config_pb2.ModelConfig(name=name))
            self._configs[name] = config
            if config.backend:
                read = json_format.MessageToDict(config, preserving_proto_field_name=True)
                self._doubles[name] = EncoderDouble(name, read, journal, mode)
        self._server = grpc.server(ThreadPoolExecutor(_AT_A_TIME), options=[("grpc.so_reuseport", 0)])
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(self, self._server)
        self.url = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def kill(self) -> None:
        """End it and its calls."""
        self._server.stop(None).wait()

    def ServerLive(self, _request: Any, _context: Any) -> Any:  # noqa: N802
        return service_pb2.ServerLiveResponse(live=True)

    def ServerReady(self, _request: Any, _context: Any) -> Any:  # noqa: N802
        return service_pb2.ServerReadyResponse(ready=True)

    def ModelReady(self, request: Any, _context: Any) -> Any:  # noqa: N802
        return service_pb2.ModelReadyResponse(ready=request.name in self._configs)

    def ModelConfig(self, request: Any, _context: Any) -> Any:  # noqa: N802
        return service_pb2.ModelConfigResponse(config=self._configs[request.name])

    def ModelMetadata(self, request: Any, _context: Any) -> Any:  # noqa: N802
        return service_pb2.ModelMetadataResponse(name=request.name, platform="scripted")

    def RepositoryIndex(self, _request: Any, _context: Any) -> Any:  # noqa: N802
        index = service_pb2.RepositoryIndexResponse()
        for name in self._configs:
            index.models.add(name=name, version="1", state="READY")
        return index

    def ModelStreamInfer(self, requests: Iterator[Any], context: Any) -> Iterator[Any]:  # noqa: N802
        for request in requests:
            config = self._configs[request.model_name]
            try:
                outputs = self._outputs(request, config, context)
            except ValueError as error:
                yield service_pb2.ModelStreamInferResponse(error_message=str(error))
                continue
            decoupled = config.model_transaction_policy.decoupled
            yield _response(request, config, outputs, final=not decoupled)
            if decoupled:
                yield _response(request, config, {}, final=True)

    def _outputs(self, request: Any, config: Any, context: Any) -> dict[str, Any]:
        tensors = _tensors(request, config)
        step = config.ensemble_scheduling.step
        double = self._doubles[step[0].model_name if step else config.name]
        parameters = {
            name: getattr(each, each.WhichOneof("parameter_choice")) for name, each in request.parameters.items()
        }
        return double.answer(request.id, tensors, parameters, lambda: not context.is_active())


def _tensors(request: Any, config: Any) -> dict[str, Any]:
    """The inputs by name; raises ``ValueError`` in Triton's words where the configuration does not allow them."""
    declared = {each.name: each for each in config.input}
    if unknown := [each.name for each in (*request.inputs,) if each.name not in declared]:
        raise ValueError(f"unexpected inference input {unknown[0]!r} for model {config.name!r}")
    if missing := [
        n for n, each in declared.items() if not each.optional and n not in {t.name for t in request.inputs}
    ]:
        raise ValueError(f"expected {len(declared)} inputs but got {len(request.inputs)}: {missing[0]}")
    found = {}
    for tensor, raw in zip(request.inputs, request.raw_input_contents, strict=True):
        each, shape = declared[tensor.name], list(tensor.shape)
        kind = model_config_pb2.DataType.Name(each.data_type)
        if tensor.datatype != _WIRE[kind]:
            raise ValueError(
                f"inference input {tensor.name!r} data-type is {tensor.datatype!r}, expected {_WIRE[kind]!r}"
            )
        rows = [shape[0]] if config.max_batch_size else []
        dims = shape[len(rows) :]
        if len(dims) != len(each.dims) or any(want not in (-1, got) for want, got in zip(each.dims, dims, strict=True)):
            raise ValueError(f"unexpected shape for input {tensor.name!r}: expected {list(each.dims)}, got {shape}")
        if rows and rows[0] > config.max_batch_size:
            raise ValueError(f"inference request batch-size must be <= {config.max_batch_size}")
        values = deserialize_bytes_tensor(raw) if kind == "TYPE_STRING" else np.frombuffer(raw, TYPES[kind])
        found[tensor.name] = values.reshape(shape)
    return found


def _response(request: Any, config: Any, outputs: dict[str, Any], *, final: bool) -> Any:
    message = service_pb2.ModelStreamInferResponse()
    message.infer_response.id, message.infer_response.model_name = request.id, config.name
    message.infer_response.parameters["triton_final_response"].bool_param = final
    kinds = {each.name: model_config_pb2.DataType.Name(each.data_type) for each in config.output}
    for name in (each.name for each in request.outputs if each.name in outputs):
        array = outputs[name]
        message.infer_response.outputs.add(name=name, datatype=_WIRE[kinds[name]], shape=array.shape)
        if kinds[name] == "TYPE_STRING":
            texts = [text.encode() for text in array.reshape(-1)]
            raw = b"".join(struct.pack("<I", len(text)) + text for text in texts)
        else:
            raw = array.tobytes()
        message.infer_response.raw_output_contents.append(raw)
    return message
