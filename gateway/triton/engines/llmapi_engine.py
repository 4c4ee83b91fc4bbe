"""Text to the stock model of the LLM API, and text back (wire contract 8)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from tritonclient.grpc import service_pb2

from gateway.contract import LLMAPI
from gateway.generation.engine import EngineChunk, EngineError, EngineFeatures
from gateway.generation.request import GenerationRequest
from gateway.generation.sampling_params import SamplingParams
from gateway.relay.interface import Began, Take
from gateway.triton.connection import Connection
from gateway.triton.engines.llmapi_reader import LlmApiReader
from gateway.triton.engines.request_encoder import RequestEncoder, describe_tensors
from gateway.triton.engines.request_tensors import put_sampling
from gateway.triton.error_mapping import unsupported
from gateway.triton.llmapi_dialect import LlmApiDialect
from gateway.triton.model_view import ModelView
from gateway.triton.response_stream import ResponseStream

_OUTPUTS = ("text_output", "finish_reason")
_DEFAULTS = SamplingParams()


class LlmApiEngine:
    """An Engine that calls the LLM API's model with text.

    Args:
        connection: the way to Triton.
        model: the LLM API's model.
        features: what was discovered of it.
        dialect: the way to ask it.
    """

    def __init__(
        self, connection: Connection, model: ModelView, features: EngineFeatures, dialect: LlmApiDialect
    ) -> None:
        self._connection = connection
        self._encoder = RequestEncoder(model, LLMAPI)
        self._features = features
        self._dialect = dialect
        capabilities = features.capabilities.items()
        self._refused = [name for name, each in capabilities if each.how == "impossible" and hasattr(_DEFAULTS, name)]

    @property
    def features(self) -> EngineFeatures:
        """What this engine can do."""
        return self._features

    def describe(self, request: GenerationRequest) -> list[dict[str, Any]]:
        """The tensors that ``generate`` would send; see ``gateway.generation.engine.Describing``."""
        return describe_tensors(self.encode(request))

    def generate(self, request: GenerationRequest) -> AsyncGenerator[EngineChunk, None]:
        """Generate one sequence; see ``gateway.generation.engine.Engine``."""
        return self.generate_relayed(request, None, None)

    async def generate_relayed(
        self, request: GenerationRequest, take: Take | None, began: Began | None
    ) -> AsyncGenerator[EngineChunk, None]:
        """Generate one sequence; see ``gateway.relay.interface.RelayingEngine``. There are no ids to take."""
        del take
        reader = LlmApiReader(self._dialect.text)
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

    def encode(self, request: GenerationRequest) -> service_pb2.ModelInferRequest:
        """Turn a request into tensors.

        What the model would fill in by itself is always sent: it stops after 32 tokens, and repeats the prompt.

        Raises:
            EngineError: it asks for what the model does not have, or its prompt cannot travel as text.
        """
        encoder = self._encoder
        self._refuse(request)
        wire = encoder.request(request.id, _OUTPUTS)
        prompt = request.prompt
        encoder.put(wire, "text_input", prompt.bare_text if self._dialect.adds_special_tokens else prompt.text)
        encoder.put(wire, "streaming", self._dialect.streams)
        encoder.put(wire, "sampling_param_max_tokens", request.max_tokens)
        encoder.put(wire, "sampling_param_exclude_input_from_output", True)
        encoder.put(wire, "return_finish_reason", True)
        put_sampling(encoder, wire, request.params)
        # A request without a seed gets none: the engine's own generator is as good as a number that nobody knows.
        if request.params.seed is not None:
            encoder.put(wire, "sampling_param_seed", request.seed)
        self._put_lora(wire, request)
        return wire

    def _refuse(self, request: GenerationRequest) -> None:
        """Refuse by the capability map, whoever asks: requests, the operator's defaults, a model's family."""
        name, params = self._encoder.model.name, request.params
        for parameter in self._refused:
            if getattr(params, parameter) != getattr(_DEFAULTS, parameter):
                raise unsupported(parameter, name)
        others = {
            "prompt": request.prompt.escaped,
            "guide": params.guide is not None,
            "use_beam_search": params.beam_width > 1,
            "prompt_table": request.prompt_table is not None,
            "num_draft_tokens": request.num_draft_tokens > 0,
        }
        for parameter, asked in others.items():
            if asked:
                raise unsupported(parameter, name)

    def _put_lora(self, wire: service_pb2.ModelInferRequest, request: GenerationRequest) -> None:
        lora, encoder = request.lora, self._encoder
        if lora is None:
            return
        if not lora.path or not encoder.put(wire, "lora_id", lora.task_id):
            raise unsupported("model", encoder.model.name, "LoRA")
        encoder.put(wire, "lora_name", lora.name)
        encoder.put(wire, "lora_path", lora.path)
        encoder.put(wire, "lora_ckpt_source", lora.source)
