"""Token ids straight to the engine model (contract sections 1.3 and 4)."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from tritonclient.grpc import service_pb2

from gateway.contract import TENSORRT_LLM
from gateway.generation.engine import EngineChunk, EngineError, EngineFeatures, ErrorKind
from gateway.generation.request import GenerationRequest
from gateway.triton.dialects.answers import TokenReader
from gateway.triton.dialects.connection import Connection
from gateway.triton.dialects.encoder import RequestEncoder, pack_words
from gateway.triton.dialects.sampling import put_end_id, put_returns, put_sampling
from gateway.triton.model_view import ModelView
from gateway.triton.stream import ResponseStream

# Naming output_ids without sequence_length makes the engine fail (contract section 1.3).
_OUTPUTS = ("output_ids", "sequence_length")


class TokensEngine:
    """An Engine that calls the engine model with token ids. A gRPC cancel frees its slot.

    Args:
        connection: the way to Triton.
        model: the engine model.
        features: what was discovered of it.
    """

    def __init__(self, connection: Connection, model: ModelView, features: EngineFeatures) -> None:
        self._connection = connection
        self._encoder = RequestEncoder(model, TENSORRT_LLM)
        self._features = features

    @property
    def features(self) -> EngineFeatures:
        """What this engine can do."""
        return self._features

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[EngineChunk, None]:
        """Generate one sequence; see ``gateway.generation.engine.Engine``."""
        reader = TokenReader(request)
        message = self.encode(request)
        stream = ResponseStream(self._connection.transport.infer(message, timeout=self._connection.timeout))
        try:
            while not stream.final:
                response = await stream.read()
                chunk = reader.read(response, final=stream.final)
                if chunk.ids or chunk.final:
                    yield chunk
        except EngineError as error:
            self._connection.report(error)
            raise
        finally:
            stream.close()

    def encode(self, request: GenerationRequest) -> service_pb2.ModelInferRequest:
        """Turn a request into tensors.

        Raises:
            EngineError: it asks for what the model does not have.
        """
        if not request.prompt.ids:
            raise EngineError(ErrorKind.INVALID_REQUEST, "The prompt is empty.")
        encoder = self._encoder
        wire = encoder.request(request.id, _OUTPUTS)
        encoder.put(wire, "input_ids", *request.prompt.ids)
        encoder.put(wire, "input_lengths", len(request.prompt.ids))
        encoder.put(wire, "request_output_len", request.max_tokens)
        encoder.put(wire, "streaming", True)
        encoder.put(wire, "exclude_input_in_output", True)
        put_end_id(encoder, wire, request.end_ids)
        if len(request.end_ids) > 1:
            words, shape = pack_words([(token,) for token in request.end_ids[1:]])
            encoder.put(wire, "stop_words_list", *words, shape=shape)
        put_sampling(encoder, wire, request.sampling, prefix="runtime_")
        for name in put_returns(encoder, wire, request):
            wire.outputs.add(name=name)
        return wire
