"""Text to a model of no known kind, and text back (wire contract 11)."""

from __future__ import annotations

import codecs

from tritonclient.grpc import service_pb2

from gateway.generation.engine import EngineChunk, EngineFeatures, MalformedOutputError
from gateway.generation.request import GenerationRequest
from gateway.text.contract import PLAIN_TEXT
from gateway.triton.connection import Connection
from gateway.triton.dialects.text_engine import TextEngine
from gateway.triton.error_mapping import no_final_response, read_finish
from gateway.triton.model_view import ModelView
from gateway.triton.tensors.output_tensors import OutputReader

_RETURNED = ("finish_reason", "num_input_tokens", "num_output_tokens")
# Always sent where declared: the model's own defaults are not known. Other inputs are sent only where requested.
_ALWAYS = ("temperature", "top_p")
_OFF = {"top_k": 0, "min_p": 0.0, "presence_penalty": 0.0, "frequency_penalty": 0.0, "repetition_penalty": 1.0}


class PlainEngine(TextEngine):
    """An Engine that calls a model with text, and with the parameters that it declares.

    Args:
        connection: the way to Triton.
        model: that takes and answers text.
        features: what was discovered of it.
    """

    def __init__(self, connection: Connection, model: ModelView, features: EngineFeatures) -> None:
        super().__init__(connection, model, PLAIN_TEXT, features)
        self._returned = tuple(name for name in _RETURNED if name in model.outputs)

    def _reader(self, request: GenerationRequest) -> PlainReader:
        return PlainReader(request.max_tokens, decoupled=self._encoder.model.decoupled)

    def encode(self, request: GenerationRequest) -> service_pb2.ModelInferRequest:
        """Turn a request into tensors; see ``TextEngine.encode``."""
        self._reject(request)
        encoder, params, model = self._encoder, request.params, self._encoder.model
        wire = encoder.request(request.id, ("text_output", *self._returned))
        prompt = request.prompt
        encoder.put(wire, "text_input", prompt.bare_text if self._features.adds_special_tokens else prompt.text)
        encoder.put(wire, "stream", model.decoupled)
        encoder.put(wire, "exclude_input_in_output", True)
        for name in _RETURNED:
            encoder.put(wire, f"return_{name}", True)
        encoder.put(wire, "max_tokens", request.max_tokens)
        for name in _ALWAYS:
            encoder.put(wire, name, getattr(params, name))
        for name, off in (*_OFF.items(), ("min_tokens", 0)):
            if (value := getattr(params, name)) != off:
                encoder.send(wire, name, value)
        if params.seed is not None:
            encoder.put(wire, "seed", request.seed)
        return wire


class PlainReader:
    """Reads the responses of one request.

    Args:
        most: tokens that were asked for: numbers that add up to more are none of new tokens of the answer.
        decoupled: whether a request may have several responses, each with what is new of the text.
    """

    __slots__ = ("_answered", "_decoder", "_decoupled", "_left", "_outputs", "_told")

    def __init__(self, most: int, *, decoupled: bool) -> None:
        self._left = most
        self._decoupled = decoupled
        self._outputs = OutputReader(("text_output", *_RETURNED))
        self._decoder = codecs.getincrementaldecoder("utf-8")()  # a model may cut its text within a character
        self._answered = self._told = False

    def read(self, response: service_pb2.ModelInferResponse, *, final: bool) -> EngineChunk:
        """Turn a response into a chunk: its new text, and what the model tells of it.

        Raises:
            MalformedOutputError: its outputs are not what the contract says, or a model that answers once answers
                again.
            EngineError: the request ended without any data.
        """
        outputs = self._outputs.read(response)
        chunk = EngineChunk(text="", final=final)
        word = self._outputs.string(outputs, "finish_reason")
        if word:
            chunk.finish_reason, chunk.failure = read_finish(word, final=final)
            if chunk.finish_reason == "length":  # the model may have a limit of its own
                chunk.finish_reason = "cut"
            self._told |= chunk.finish_reason is not None or chunk.failure is not None
        if final and not self._told:
            chunk.finish_reason = "untold"
        raw = self._outputs.string(outputs, "text_output")
        if raw is None and final and not self._answered and chunk.failure is None:
            raise no_final_response()
        if raw is not None and self._answered and not self._decoupled:
            raise MalformedOutputError("a second text from a model that should return one response")
        self._answered |= raw is not None
        try:
            chunk.text = self._decoder.decode(raw or b"")
        except UnicodeDecodeError:
            raise MalformedOutputError("a text that is not UTF-8") from None
        if final and self._decoder.getstate()[0]:  # a limit may cut a character; so it is shown of tokens, too
            chunk.text += "\N{REPLACEMENT CHARACTER}"
        self._count(chunk, outputs, raw)
        return chunk

    def _count(self, chunk: EngineChunk, outputs: dict[str, bytes], raw: bytes | None) -> None:
        chunk.prompt_tokens = self._outputs.number(outputs, "num_input_tokens")
        counted = self._outputs.number(outputs, "num_output_tokens")
        if raw is None:
            chunk.output_tokens = 0
        elif counted is not None and bool(raw) <= counted <= self._left:
            self._left -= counted
            chunk.output_tokens = counted
