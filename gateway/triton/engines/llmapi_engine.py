"""Text to the stock model of the LLM API, and text back (wire contract 8)."""

from __future__ import annotations

from tritonclient.grpc import service_pb2

from gateway.contract import LLMAPI
from gateway.generation.engine import EngineFeatures
from gateway.generation.request import GenerationRequest
from gateway.triton.connection import Connection
from gateway.triton.engines.llmapi_reader import LlmApiReader
from gateway.triton.engines.request_tensors import put_sampling
from gateway.triton.engines.text_engine import TextEngine
from gateway.triton.error_mapping import unsupported
from gateway.triton.llmapi_dialect import LlmApiDialect
from gateway.triton.model_view import ModelView

_OUTPUTS = ("text_output", "finish_reason")


class LlmApiEngine(TextEngine):
    """An Engine that calls the LLM API's model.

    Args:
        connection: the way to Triton.
        model: the LLM API's model.
        features: what was discovered of it.
        dialect: the way to ask it.
    """

    def __init__(
        self, connection: Connection, model: ModelView, features: EngineFeatures, dialect: LlmApiDialect
    ) -> None:
        super().__init__(connection, model, LLMAPI, features)
        self._dialect = dialect

    def _reader(self, request: GenerationRequest) -> LlmApiReader:
        del request
        return LlmApiReader(self._dialect.text)

    def encode(self, request: GenerationRequest) -> service_pb2.ModelInferRequest:
        """Turn a request into tensors; see ``TextEngine.encode``.

        What the model would fill in by itself is always sent: it stops after 32 tokens, and repeats the prompt.
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

    def _put_lora(self, wire: service_pb2.ModelInferRequest, request: GenerationRequest) -> None:
        lora, encoder = request.lora, self._encoder
        if lora is None:
            return
        if not lora.path or not encoder.put(wire, "lora_id", lora.task_id):
            raise unsupported("model", encoder.model.name, "LoRA")
        encoder.put(wire, "lora_name", lora.name)
        encoder.put(wire, "lora_path", lora.path)
        encoder.put(wire, "lora_ckpt_source", lora.source)
