"""Text to the stock model of the LLM API, and its responses back to chunks (wire contract 8)."""

from __future__ import annotations

from tritonclient.grpc import service_pb2

from gateway.generation.engine import EngineChunk, EngineFeatures, MalformedOutputError
from gateway.generation.request import GenerationRequest
from gateway.text.contract import LLMAPI
from gateway.triton.connection import Connection
from gateway.triton.dialects.text_engine import TextEngine
from gateway.triton.error_mapping import no_final_response, read_finish, unsupported
from gateway.triton.llmapi_dialect import LlmApiDialect, TextForm
from gateway.triton.model_view import ModelView
from gateway.triton.tensors.output_tensors import OutputReader
from gateway.triton.tensors.request_tensors import put_sampling

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
        self._reject(request)
        wire = encoder.request(request.id, _OUTPUTS)
        prompt = request.prompt
        encoder.put(wire, "text_input", prompt.bare_text if self._dialect.adds_special_tokens else prompt.text)
        encoder.put(wire, "streaming", self._dialect.streams)
        encoder.put(wire, "sampling_param_max_tokens", request.max_tokens)
        encoder.put(wire, "sampling_param_exclude_input_from_output", True)
        encoder.put(wire, "return_finish_reason", True)
        put_sampling(encoder, wire, request.params)
        # A request without a seed gets none: the engine's own generator is as good as a number unknown to the client.
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


class LlmApiReader:
    """Reads the responses of one request.

    Args:
        text: what the text of a response is. Nothing is concluded from the texts themselves: "ha" and then "haha" may
            be either form.
    """

    __slots__ = ("_answered", "_ended", "_outputs", "_so_far", "_text")

    def __init__(self, text: TextForm) -> None:
        self._text = text
        self._outputs = OutputReader(_OUTPUTS)
        self._so_far = b""
        self._answered = self._ended = False

    def read(self, response: service_pb2.ModelInferResponse, *, final: bool) -> EngineChunk:
        """Turn a response into a chunk: its new text, which may be none, and why the answer ended.

        Raises:
            MalformedOutputError: its outputs are not what the contract says, a cumulative text does not continue the
                one before, a model that answers once answers again, or the last response does not say why it is that.
            EngineError: the request ended without any data.
        """
        outputs = self._outputs.read(response)
        chunk = EngineChunk(text="", final=final)
        word = self._outputs.string(outputs, "finish_reason")
        if word:
            chunk.finish_reason, chunk.failure = read_finish(word, final=final)
            self._ended |= chunk.finish_reason is not None or chunk.failure is not None
        raw = self._outputs.string(outputs, "text_output")
        if raw is not None:
            chunk.text = self._new(raw)
            self._answered = True
        if final and not self._answered:
            raise no_final_response()
        if final and not self._ended:
            raise MalformedOutputError("no finish_reason in the last response")
        return chunk

    def _new(self, raw: bytes) -> str:
        """What a response's text adds to the answer."""
        if self._text == "cumulative":
            if not raw.startswith(self._so_far):
                detail = f"a cumulative text of {len(raw)} bytes does not continue the {len(self._so_far)} before"
                raise MalformedOutputError(detail)
            raw, self._so_far = raw[len(self._so_far) :], raw
        elif self._text == "whole" and self._answered:
            raise MalformedOutputError("a second text from a model that should return one response")
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise MalformedOutputError("a text that is not UTF-8, or is cut within a character") from None
