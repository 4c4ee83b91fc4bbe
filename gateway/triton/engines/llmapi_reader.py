"""Responses of the LLM API's model to chunks."""

from __future__ import annotations

from tritonclient.grpc import service_pb2

from gateway.generation.engine import EngineChunk, MalformedOutputError
from gateway.triton.engines.output_tensors import Outputs
from gateway.triton.error_mapping import no_final_response, read_finish
from gateway.triton.llmapi_dialect import TextForm

_WANTED = ("text_output", "finish_reason")


class LlmApiReader:
    """Reads the responses of one request.

    Args:
        text: what the text of a response is. Nothing is concluded from the texts themselves: "ha" and then "haha" may
            be either form.
    """

    __slots__ = ("_answered", "_ended", "_outputs", "_so_far", "_text")

    def __init__(self, text: TextForm) -> None:
        self._text = text
        self._outputs = Outputs(_WANTED)
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
            raise MalformedOutputError("a second text of a model that is taken to answer once")
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise MalformedOutputError("a text that is not UTF-8, or is cut within a character") from None
