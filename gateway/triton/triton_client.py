"""Triton's small calls for health and configuration, each with a deadline."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, cast

import grpc
from tritonclient.grpc import model_config_pb2, service_pb2, service_pb2_grpc

from gateway.generation.engine import EngineError, ErrorKind
from gateway.triton.error_mapping import engine_error

DEADLINE_S = 2.0

_READY = "READY"
# What other servers answer, and what is left of an answer without its trailers.
_OF_NO_TRITON = (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL)
# What gRPC says of a port that takes connections and does not speak HTTP/2, such as Triton's HTTP port.
_OTHER_PROTOCOL = re.compile(
    "failed to connect to all addresses.*(?:Failed parsing HTTP/2|Socket closed|reset by peer)"
)
_UNREADABLE = "The response of Triton, or of a proxy in front of Triton, cannot be decoded"
_NO_TRITON = (
    "The server does not respond like Triton's gRPC port ({}): set that port, usually 8001, without a proxy that "
    "drops HTTP/2 trailers"
)


@dataclass(frozen=True, slots=True)
class ModelState:
    """The state of a model in Triton's repository index.

    Attributes:
        ready: whether a version of it is ready.
        words: state and its reason, in Triton's words; empty where no load of the model was requested yet.
    """

    ready: bool
    words: str


class TritonClient:
    """Health and metadata of one Triton (wire contract 3.7) over a channel of another owner.

    Every method raises ``EngineError`` when Triton does not answer within ``DEADLINE_S``, or answers with a status or
    with what cannot be decoded.
    """

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub: Any = service_pb2_grpc.GRPCInferenceServiceStub(channel)

    async def server_live(self) -> bool:
        """Tell whether the server process responds."""
        response = await self._call(self._stub.ServerLive, service_pb2.ServerLiveRequest())
        return bool(response.live)

    async def model_ready(self, model: str) -> bool:
        """Tell whether the model is loaded; False also for an unknown one."""
        response = await self._call(self._stub.ModelReady, service_pb2.ModelReadyRequest(name=model))
        return bool(response.ready)

    async def model_config(self, model: str) -> model_config_pb2.ModelConfig:
        """Read the configuration of a loaded model."""
        response = await self._call(self._stub.ModelConfig, service_pb2.ModelConfigRequest(name=model))
        return cast("model_config_pb2.ModelConfig", response.config)

    async def completed(self, model: str) -> int:
        """Count the requests that the model has completed, of all clients, without those that a cache answered."""
        response = await self._call(self._stub.ModelStatistics, service_pb2.ModelStatisticsRequest(name=model))
        found = [each.inference_stats for each in response.model_stats]
        return sum(each.success.count - each.cache_hit.count for each in found)

    async def repository(self) -> dict[str, ModelState]:
        """Read the state of each model of the repository by name, loaded or not."""
        response = await self._call(self._stub.RepositoryIndex, service_pb2.RepositoryIndexRequest())
        found: dict[str, ModelState] = {}
        for entry in response.models:  # one for each version
            if entry.name not in found or entry.state == _READY:
                words = ": ".join(filter(None, (entry.state, entry.reason)))
                found[entry.name] = ModelState(entry.state == _READY, words)
        return found

    async def _call(self, method: Any, request: Any) -> Any:
        try:
            response = await method(request, timeout=DEADLINE_S)
        except grpc.aio.AioRpcError as error:
            failure = engine_error(error.code().name, error.details() or "")
            if error.code() in _OF_NO_TRITON or _OTHER_PROTOCOL.search(error.details() or ""):
                failure = EngineError(failure.kind, _NO_TRITON.format(error.code().name), failure.detail)
            raise failure from None
        if response is None:  # as grpc.aio says that its deserializer failed
            raise EngineError(ErrorKind.INTERNAL, _UNREADABLE)
        return response
