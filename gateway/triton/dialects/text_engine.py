"""The part that engines have in common whose prompts travel as text in one call, which a gRPC cancel ends."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from typing import Any, Protocol

from tritonclient.grpc import service_pb2

from gateway.generation.engine import EngineChunk, EngineError, EngineFeatures
from gateway.generation.relay.interface import Began, Take
from gateway.generation.request import GenerationRequest
from gateway.generation.sampling_params import SamplingParams
from gateway.text.contract import ModelSpec
from gateway.triton.connection import Connection
from gateway.triton.error_mapping import unsupported
from gateway.triton.model_view import ModelView
from gateway.triton.response_stream import ResponseStream
from gateway.triton.tensors.request_encoder import RequestEncoder, describe_tensors

_DEFAULTS = SamplingParams()


class ResponseReader(Protocol):
    """Reads the responses of one request."""

    def read(self, response: service_pb2.ModelInferResponse, *, final: bool) -> EngineChunk:
        """Turn a response into a chunk.

        Raises:
            EngineError: it is not what the contract says.
        """
        ...


class TextEngine(ABC):
    """An Engine that calls one model with text.

    Args:
        connection: the way to Triton.
        model: that is called.
        spec: its tensors by the contract.
        features: what was discovered of it.
    """

    def __init__(self, connection: Connection, model: ModelView, spec: ModelSpec, features: EngineFeatures) -> None:
        self._connection = connection
        self._encoder = RequestEncoder(model, spec)
        self._features = features
        capabilities = features.capabilities.items()
        self._rejected = [name for name, each in capabilities if each.how == "impossible" and hasattr(_DEFAULTS, name)]

    @property
    def features(self) -> EngineFeatures:
        """What this engine can do."""
        return self._features

    def describe(self, request: GenerationRequest) -> list[dict[str, Any]]:
        """The tensors that ``generate`` would send; see ``gateway.generation.engine.DescribingEngine``."""
        return describe_tensors(self.encode(request))

    def generate(self, request: GenerationRequest) -> AsyncGenerator[EngineChunk, None]:
        """Generate one sequence; see ``gateway.generation.engine.Engine``."""
        return self.generate_relayed(request, None, None)

    async def generate_relayed(
        self, request: GenerationRequest, take: Take | None, began: Began | None
    ) -> AsyncGenerator[EngineChunk, None]:
        """Generate one sequence; see ``RelayingEngine``. Nothing is relayed: all is read."""
        del take
        reader = self._reader(request)
        call = self._connection.transport.infer(
            self.encode(request), timeout=self._connection.timeout, traceparent=request.traceparent
        )
        stream = ResponseStream(call)
        if began is not None:
            began(call.cancel)
        try:
            while not stream.final:
                response = await stream.read()
                yield reader.read(response, final=stream.final)
        except EngineError as error:
            self._connection.report(error)
            raise
        finally:
            stream.close()

    @abstractmethod
    def encode(self, request: GenerationRequest) -> service_pb2.ModelInferRequest:
        """Turn a request into tensors.

        Raises:
            EngineError: it asks for what the model does not have, or its prompt cannot travel as text.
        """

    @abstractmethod
    def _reader(self, request: GenerationRequest) -> ResponseReader:
        """Make what reads the responses of a request."""

    def _reject(self, request: GenerationRequest) -> None:
        """Reject by the capability map what a request, the operator's defaults or a model's family sets."""
        name, params = self._encoder.model.name, request.params
        for parameter in self._rejected:
            if getattr(params, parameter) != getattr(_DEFAULTS, parameter):
                raise unsupported(parameter, name)
        others = {
            "prompt": request.prompt.escaped,
            "guide": params.guide is not None and params.guide.kind not in self._features.guide_types,
            "use_beam_search": params.beam_width > 1,
            "prompt_table": request.prompt_table is not None,
            "num_draft_tokens": request.num_draft_tokens > 0,
        }
        for parameter, asked in others.items():
            if asked:
                raise unsupported(parameter, name)
