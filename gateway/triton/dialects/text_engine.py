"""The common part of dialects that send text to one model in a call that a gRPC cancel ends."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Protocol

from tritonclient.grpc import service_pb2

from gateway.generation.engine import EngineChunk, EngineError, EngineFeatures, Estimate
from gateway.generation.relay.interface import Began, Take
from gateway.generation.request import GenerationRequest
from gateway.generation.sampling_params import SamplingParams
from gateway.settings import EnginePath
from gateway.text.contract import ModelSpec
from gateway.triton import hints
from gateway.triton.abilities import EngineOptions
from gateway.triton.connection import Connection
from gateway.triton.dialects.dialect import DiscoveryError, GeneratorDialect, TritonEngine, check_required
from gateway.triton.error_mapping import unsupported
from gateway.triton.model_view import ModelView
from gateway.triton.pipeline import Models
from gateway.triton.response_stream import ResponseStream

_DEFAULTS = SamplingParams()


class ResponseReader(Protocol):
    """Reads the responses of one request."""

    def read(self, response: service_pb2.ModelInferResponse, *, final: bool) -> EngineChunk:
        """Convert a response to a chunk.

        Raises:
            EngineError: the response contradicts the contract.
        """
        ...


class TextDialect(GeneratorDialect):
    """A dialect of one model that takes and returns text."""

    def check(self, models: Models, path: EnginePath) -> None:
        """Reject a model that cannot be served; see ``Dialect``."""
        model = models.entry
        if path not in ("auto", self.path):
            raise DiscoveryError(f"path: {path} is configured, but {model.name!r} is {self.name} (path: {self.path})")
        self.check_model(model)

    @abstractmethod
    def check_model(self, model: ModelView) -> None:
        """Reject a recognized model that cannot be served.

        Raises:
            DiscoveryError: with the reason.
        """

    def features(self, models: Models, reason: str, options: EngineOptions, **more: Any) -> EngineFeatures:
        """Make the features of the engine: those of all such dialects, and ``more``.

        Raises:
            DiscoveryError: the model requires inputs that are not sent.
        """
        entry = models.entry
        check_required(entry, self.spec, self.always)
        return EngineFeatures(
            path=self.path,
            reason=reason,
            model=entry.name,
            prompt_ids=False,
            max_seq_len=hints.number(entry, "max_seq_len"),
            tokenizer_dir=hints.parameter(entry, "tokenizer_dir"),
            vocab_size=options.vocab_size,
            losses=self.losses(models, options),
            **{"token_ids": False, "logprobs": False, **more},
        )


def estimates(*, counts: bool, finishes: bool) -> frozenset[Estimate]:
    """List the parts of an answer that are estimated where a model does not report counts or finish reasons."""
    reported: Mapping[Estimate, bool] = {"completion_tokens": counts, "finish_reason": finishes}
    return frozenset(name for name, tells in reported.items() if not tells)


class TextEngine(TritonEngine):
    """An Engine that calls one model with text.

    Args:
        connection: connection to Triton.
        model: the called model.
        spec: its tensors by the contract.
        features: its features by discovery.
    """

    def __init__(self, connection: Connection, model: ModelView, spec: ModelSpec, features: EngineFeatures) -> None:
        super().__init__(connection, model, spec, features)
        capabilities = features.capabilities.items()
        self._rejected = [name for name, each in capabilities if each.how == "impossible" and hasattr(_DEFAULTS, name)]

    def generate(self, request: GenerationRequest) -> AsyncGenerator[EngineChunk, None]:
        """Generate one sequence; see ``gateway.generation.engine.TokenGenerator``."""
        return self.generate_relayed(request, None, None)

    async def generate_relayed(
        self, request: GenerationRequest, take: Take | None, began: Began | None
    ) -> AsyncGenerator[EngineChunk, None]:
        """Generate one sequence without the relay, as all of it is read; see ``RelayingEngine``."""
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
