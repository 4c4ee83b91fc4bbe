"""Output tensors to chunks. Runs once per token: no NumPy, no copies beyond the values."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import cast

from tritonclient.grpc import service_pb2

from gateway.generation.engine import EngineChunk, EngineError, EngineFinish, ErrorKind
from gateway.generation.request import GenerationRequest
from gateway.triton.errors import no_final_response

if sys.byteorder != "little":
    raise ImportError("tensors on the wire are little-endian, and so must this machine be")

_FINISHES = {b"stop": "stop", b"length": "length", b"cancelled": "cancelled"}


def _int32(raw: bytes) -> int:
    return int.from_bytes(raw[:4], "little", signed=True)


def _first_string(raw: bytes) -> bytes:
    return raw[4 : 4 + int.from_bytes(raw[:4], "little")]


def _finish(raw: bytes | None) -> EngineFinish | None:
    return cast("EngineFinish | None", _FINISHES.get(_first_string(raw).lower())) if raw else None


def _outputs(response: service_pb2.ModelInferResponse) -> dict[str, bytes]:
    return dict(zip([output.name for output in response.outputs], response.raw_output_contents, strict=False))


class TokenReader:
    """Reads the responses of one request that carry token ids.

    Args:
        request: what was asked; outputs beyond that are ignored, some versions send them unasked (contract 9.2).
    """

    __slots__ = ("_answered", "_logprobs", "_seen", "_top_logprobs")

    def __init__(self, request: GenerationRequest) -> None:
        self._logprobs = request.logprobs
        self._top_logprobs = request.top_logprobs
        self._seen = 0
        self._answered = False

    def read(self, response: service_pb2.ModelInferResponse, *, final: bool) -> EngineChunk:
        """Turn a response into a chunk: its new ids, the log-probs of just these.

        Raises:
            EngineError: the request ended without any data, or log-probs that were asked for are missing.
        """
        outputs = _outputs(response)
        raw_ids = outputs.get("output_ids")
        if raw_ids is None:
            if final and not self._answered:
                raise no_final_response()
            return EngineChunk(final=final)
        self._answered = True
        raw_length = outputs.get("sequence_length")
        count = min(_int32(raw_length), len(raw_ids) // 4) if raw_length else len(raw_ids) // 4
        chunk = EngineChunk(ids=_ids(raw_ids, count), final=final)
        if final:
            chunk.finish_reason = _finish(outputs.get("finish_reason"))
        raw_prompt = outputs.get("num_input_tokens")
        if raw_prompt:
            chunk.prompt_tokens = _int32(raw_prompt)
        if count and self._logprobs:
            chunk.logprobs = self._new_logprobs(outputs.get("output_log_probs"), count)
            if self._top_logprobs:
                chunk.top_logprobs = self._alternatives(outputs, count)
        self._seen += count
        return chunk

    def _new_logprobs(self, raw: bytes | None, count: int) -> Sequence[float]:
        # The list is cumulative when streaming, and may have an entry more or fewer at its end (contract section 2.5).
        values = memoryview(raw or b"")[4 * self._seen : 4 * (self._seen + count)].cast("f").tolist()
        if len(values) != count:
            raise _missing("log-probs")
        return values

    def _alternatives(self, outputs: dict[str, bytes], count: int) -> Sequence[Sequence[tuple[int, float]]]:
        ids = memoryview(outputs.get("top_log_probs_ids", b"")).cast("i").tolist()
        values = memoryview(outputs.get("top_log_probs", b"")).cast("f").tolist()
        if not ids or len(ids) != len(values) or len(ids) % count:
            raise _missing("alternatives")
        width = len(ids) // count
        wanted = min(width, self._top_logprobs)
        pairs = list(zip(ids, values, strict=True))
        return [pairs[start : start + wanted] for start in range(0, len(pairs), width)]


class TextReader:
    """Reads the responses of one request that carry text only."""

    __slots__ = ("_answered",)

    def __init__(self) -> None:
        self._answered = False

    def read(self, response: service_pb2.ModelInferResponse, *, final: bool) -> EngineChunk:
        """Turn a response into a chunk: its new text, and the counts that the server gives.

        Raises:
            EngineError: the request ended without any data.
        """
        outputs = _outputs(response)
        raw = outputs.get("text_output")
        if raw is None:
            if final and not self._answered:
                raise no_final_response()
            return EngineChunk(text="", final=final)
        self._answered = True
        chunk = EngineChunk(text=_first_string(raw).decode("utf-8", "replace"), final=final)
        prompt, generated = outputs.get("num_input_tokens"), outputs.get("num_output_tokens")
        chunk.prompt_tokens = _int32(prompt) if prompt else None
        chunk.output_tokens = _int32(generated) if generated else None
        chunk.finish_reason = _finish(outputs.get("finish_reason")) if final else None
        return chunk


def _ids(raw: bytes, count: int) -> tuple[int, ...]:
    if count == 1:
        return (_int32(raw),)
    return tuple(memoryview(raw)[: 4 * count].cast("i"))


def _missing(what: str) -> EngineError:
    return EngineError(ErrorKind.INTERNAL, f"The engine did not return the {what} that were asked for.")
