"""The dialect of the engine model: token ids in and out (wire contract 1.3 and 4)."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import AsyncGenerator, Callable, Hashable

from tritonclient.grpc import service_pb2

from gateway.generation.engine import EngineChunk, EngineError, EngineFeatures, ErrorKind
from gateway.generation.relay.interface import Began, Take
from gateway.generation.request import GenerationRequest
from gateway.generation.sampling_params import SamplingParams
from gateway.settings import EnginePath
from gateway.text.bounded_dict import BoundedDict
from gateway.text.contract import TENSORRT_LLM
from gateway.text.tokens.token_ids import ID_BYTES, pack
from gateway.triton.abilities import NO_OPTIONS, Abilities, EngineOptions, read_abilities
from gateway.triton.connection import Connection
from gateway.triton.dialects.dialect import DiscoveryError, TritonEngine, check_required
from gateway.triton.dialects.tensorrt_llm import ALWAYS, TensorRtLlmDialect, one_response, relative
from gateway.triton.error_mapping import unsupported
from gateway.triton.model_view import ModelView
from gateway.triton.pipeline import Models, is_engine
from gateway.triton.response_stream import ResponseStream
from gateway.triton.tensors.answer_readers import TokenReader
from gateway.triton.tensors.known_responses import KnownResponses
from gateway.triton.tensors.request_encoder import pack_words
from gateway.triton.tensors.request_tensors import put_logit_bias, put_parameters, put_prompt_table
from gateway.triton.text_path import is_decoupled

_MOST_CACHED = 64
# Fields that differ in each request, and those that only unusual requests have (`_is_usual`).
_OWN = {
    "id", "prompt", "max_tokens", "seed", "end_texts", "traceparent",
    "params", "params.max_tokens", "params.seed", "params.stop", "params.stream", "params.prediction",
}  # fmt: skip
_UNUSUAL = {
    "bad_word_ids", "draft", "lora", "prompt_table",
    "params.cache_salt", "params.guide", "params.logit_bias", "params.prompt_logprobs",
}  # fmt: skip

_fields = {field.name for field in dataclasses.fields(GenerationRequest)}
_fields |= {f"params.{field.name}" for field in dataclasses.fields(SamplingParams)}
_key: Callable[[GenerationRequest], Hashable] = operator.attrgetter(*sorted(_fields - _OWN - _UNUSUAL))
_unusual = operator.attrgetter(*sorted(_UNUSUAL - {"params.prompt_logprobs"}))

# Naming output_ids without sequence_length makes the engine fail (wire contract 1.3).
_OUTPUTS = ("output_ids", "sequence_length")


class TokensDialect(TensorRtLlmDialect):
    """The dialect of the engine model, which takes and returns token ids."""

    path = "tokens"
    kind = "engine"
    name = "an engine model"
    served = "its engine model (input_ids, input_lengths and request_output_len)"
    spec = TENSORRT_LLM
    always = ALWAYS | {"input_ids", "input_lengths", "request_output_len", "streaming"}

    def recognizes(self, model: ModelView) -> bool:
        """Tell whether a model is an engine model; see ``Dialect``."""
        return is_engine(model)

    def check(self, models: Models, path: EnginePath) -> None:
        """Reject the setting of another path; see ``Dialect``."""
        if path == "ensemble":
            raise DiscoveryError(f"path: ensemble is configured, but model {models.entry.name!r} is an engine model")

    def make(
        self, connection: Connection, models: Models, reason: str, options: EngineOptions = NO_OPTIONS
    ) -> TokensEngine:
        """Make the engine; see ``Dialect``."""
        engine = models.engine
        assert engine is not None  # noqa: S101
        check_required(engine, self.spec, self.always)
        abilities = read_abilities(engine, engine, options, guided=models.guided, drafted=models.drafted)
        features = dataclasses.replace(
            self.features(engine, models, abilities, options, reason),
            max_draft_tokens=abilities.max_draft_tokens,
            streams="pieces" if is_decoupled(models) else "whole",
        )
        return TokensEngine(connection, engine, features, abilities)

    def lost(self, models: Models, options: EngineOptions) -> tuple[str, ...]:
        """List what answers lose; see ``Dialect``."""
        one = () if is_decoupled(models) else (one_response(models),)
        return (*one, *relative(models.engine or models.entry, models, options))


class RequestCache:
    """The common parts of requests, by the parameters that they have.

    Most clients send the same parameters each time. To build their tensors again took a tenth of a short request.

    Args:
        build: makes that part from a request; it must not use the id, prompt, length or seed.
    """

    def __init__(self, build: Callable[[GenerationRequest], service_pb2.ModelInferRequest]) -> None:
        self._build = build
        self._built = BoundedDict[Hashable, service_pb2.ModelInferRequest](_MOST_CACHED)

    def common(self, request: GenerationRequest) -> service_pb2.ModelInferRequest:
        """Return the part that a request shares with others; not to be changed.

        Raises:
            EngineError: the part cannot be built.
        """
        if not _is_usual(request):
            return self._build(request)
        key = _key(request)
        built = self._built.get(key)
        if built is None:
            built = self._built[key] = self._build(request)
        return built


def _is_usual(request: GenerationRequest) -> bool:
    """Whether it has nothing that is large, or that the prompt decides about."""
    return request.params.prompt_logprobs is None and not any(_unusual(request))


class TokensEngine(TritonEngine):
    """An Engine that calls the engine model with token ids.

    A gRPC cancel frees its slot.

    Args:
        connection: connection to Triton.
        model: the engine model.
        features: its features by discovery.
        abilities: its abilities with their tensors.
    """

    def __init__(
        self, connection: Connection, model: ModelView, features: EngineFeatures, abilities: Abilities
    ) -> None:
        super().__init__(connection, model, TENSORRT_LLM, features)
        self._abilities = abilities
        self._usual = RequestCache(self._common)
        self._known = KnownResponses()

    def generate(self, request: GenerationRequest) -> AsyncGenerator[EngineChunk, None]:
        """Generate one sequence; see ``gateway.generation.engine.TokenGenerator``."""
        return self.generate_relayed(request, None, None)

    async def generate_relayed(
        self, request: GenerationRequest, take: Take | None, began: Began | None
    ) -> AsyncGenerator[EngineChunk, None]:
        """Generate one sequence; see ``RelayingEngine``."""
        reader = TokenReader(request, self._abilities, self._known)
        call = self._connection.transport.infer(
            self.encode(request), timeout=self._connection.timeout, traceparent=request.traceparent
        )
        stream = ResponseStream(call)
        read = stream.read_message
        match = None if take is None else reader.template.match  # without a relay each response is parsed
        if take is not None:
            call.tap = reader.tap(take)
        if began is not None:
            began(call.cancel)
        try:
            while not stream.final:
                message = await read()
                token = None if match is None else match(message)
                if token is not None:
                    reader.answered = True
                    yield EngineChunk((token,))
                    continue
                response = await stream.parse(message)
                chunk = reader.read(response, final=stream.final, message=message)
                if chunk.ids or chunk.final or chunk.failure or chunk.finish_reason:
                    yield chunk
        except EngineError as error:
            self._connection.report(error)
            raise
        finally:
            stream.close()

    def encode(self, request: GenerationRequest) -> service_pb2.ModelInferRequest:
        """Convert a request to tensors.

        Raises:
            EngineError: the request needs what the model lacks.
        """
        if not request.prompt.ids:
            raise EngineError(ErrorKind.INVALID_REQUEST, "The prompt is empty.", param="prompt")
        encoder = self._encoder
        wire = service_pb2.ModelInferRequest(id=request.id)
        ids = pack(put_prompt_table(encoder, wire, request, self._abilities)) + pack(request.prompt.ids)
        length = len(ids) // ID_BYTES
        encoder.put_raw(wire, "input_ids", ids, shape=(length,))
        encoder.put(wire, "input_lengths", length)
        encoder.put(wire, "request_output_len", request.max_tokens)
        encoder.put(wire, "seed", request.seed)
        wire.MergeFrom(self._usual.common(request))
        return wire

    def _common(self, request: GenerationRequest) -> service_pb2.ModelInferRequest:
        """All of a request but its id, prompt, length and seed."""
        encoder = self._encoder
        wire = encoder.request("", _OUTPUTS)
        encoder.put(wire, "streaming", self._features.streams == "pieces" and request.params.beam_width == 1)
        encoder.put(wire, "exclude_input_in_output", True)
        self._put_words(wire, request)
        put_logit_bias(encoder, wire, request, self._abilities)
        put_parameters(encoder, wire, request, self._abilities)
        return wire

    def _put_words(self, wire: service_pb2.ModelInferRequest, request: GenerationRequest) -> None:
        # With min_tokens the engine holds back end_id only: the others would end the answer too early, so that it is
        # left to the gateway to end it by them.
        stops = (
            () if request.params.min_tokens else dict.fromkeys((*request.end_ids[1:], *request.params.stop_token_ids))
        )
        if stops:
            words, shape = pack_words([(token,) for token in stops])
            self._encoder.put(wire, "stop_words_list", *words, shape=shape)
        if request.bad_word_ids:
            words, shape = pack_words(request.bad_word_ids)
            if not self._encoder.put(wire, "bad_words_list", *words, shape=shape):
                raise unsupported("bad_words", self._encoder.model.name)
