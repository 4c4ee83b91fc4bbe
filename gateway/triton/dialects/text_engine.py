"""The common part of dialects that send text to one model in a call that a gRPC cancel ends."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterable, Mapping
from typing import Any, ClassVar

from tritonclient.grpc import service_pb2

from gateway.generation.engine import EngineChunk, EngineError, EngineFeatures, Estimate, MalformedOutputError
from gateway.generation.relay.interface import Began, Take
from gateway.generation.request import GenerationRequest
from gateway.generation.sampling_params import SamplingParams
from gateway.settings import EnginePath
from gateway.text.contract import ModelSpec
from gateway.triton import hints
from gateway.triton.abilities import EngineOptions
from gateway.triton.connection import Connection
from gateway.triton.dialects.dialect import DiscoveryError, GeneratorDialect, TritonEngine, check_required
from gateway.triton.error_mapping import no_final_response, unsupported
from gateway.triton.model_view import ModelView
from gateway.triton.pipeline import Models
from gateway.triton.response_stream import ResponseStream
from gateway.triton.tensors.output_tensors import OutputReader

_DEFAULTS = SamplingParams()


class ResponseReader(ABC):
    """Reads the responses of one request.

    Args:
        outputs: names of what is read beside the text and the finish reason.
        finishes: whether the last response must have said why the answer ended.

    Attributes:
        text: name of the output with the text.
    """

    text: ClassVar[str] = "text_output"

    def __init__(self, outputs: Iterable[str] = (), *, finishes: bool) -> None:
        self._outputs = OutputReader((self.text, "finish_reason", *outputs))
        self._finishes = finishes
        self._answered = self._ended = False

    def read(self, response: service_pb2.ModelInferResponse, *, final: bool) -> EngineChunk:
        """Convert a response to a chunk: its new text, perhaps empty, and the finish reason.

        Raises:
            MalformedOutputError: its outputs are not what the contract says, or the last response does not say why it
                is the last.
            EngineError: the request ended without any data.
        """
        outputs = self._outputs.read(response)
        chunk = EngineChunk(final=final)
        self._outputs.read_finish(outputs, chunk)
        self._ended |= chunk.finish_reason is not None or chunk.failure is not None
        raw = self._outputs.string(outputs, self.text)
        if raw is None and final and not self._answered and chunk.failure is None:
            raise no_final_response()
        self._take(chunk, outputs, raw)
        self._answered |= raw is not None
        if final and self._finishes and not self._ended:
            raise MalformedOutputError("no finish_reason in the last response")
        return chunk

    @abstractmethod
    def _take(self, chunk: EngineChunk, outputs: dict[str, bytes], raw: bytes | None) -> None:
        """Add what a response says to its chunk; ``raw`` is its text, None without one."""


def decoded(raw: bytes) -> str:
    """The text of a response that ends with a whole character.

    Raises:
        MalformedOutputError: it does not.
    """
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise MalformedOutputError("a text that is not UTF-8, or is cut within a character") from None


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
        impossible = [name for name, each in features.capabilities.items() if each.how == "impossible"]
        self._rejected = [name for name in impossible if hasattr(_DEFAULTS, name) and name != "num_draft_tokens"]

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
            "num_draft_tokens": request.num_draft_tokens > 0,
        }
        for parameter, asked in others.items():
            if asked:
                raise unsupported(parameter, name)
