"""Output tensors to chunks. Runs once per token: no NumPy, no copies beyond the values."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import cast

from tritonclient.grpc import service_pb2

from gateway.generation.engine import EngineChunk, EngineError, EngineFinish, ErrorKind
from gateway.generation.request import GenerationRequest
from gateway.triton.abilities import Abilities
from gateway.triton.dialects.logits import log_probs, read_rows
from gateway.triton.dialects.returns import uses_logits
from gateway.triton.dialects.template import TemplateShelf, TokenTemplate
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


def _plain_ids(response: service_pb2.ModelInferResponse) -> tuple[int, ...] | None:
    """The ids of a response that has one id and nothing else to look at; None of any other: most have just that."""
    outputs = response.outputs
    if len(outputs) != 2 or outputs[0].name != "output_ids" or outputs[1].name != "sequence_length":
        return None
    raw_ids, raw_length = response.raw_output_contents
    return (_int32(raw_ids),) if len(raw_ids) == 4 and raw_length == _ONE else None


_DEFAULT = Abilities()
_ONE = b"\x01\0\0\0"


class TokenReader:
    """Reads the responses of one request that carry token ids.

    Attributes:
        template: knows the responses that say no more than an id; they need not be read.
        answered: whether there was any data; to be set for responses that are not read.

    Args:
        request: what was asked; outputs beyond that are ignored, some versions send them unasked (contract 9.2).
        abilities: which tensors give it.
        shelf: templates of the model's earlier requests.
    """

    __slots__ = (
        "_abilities",
        "_cached",
        "_logits",
        "_logprobs",
        "_plain",
        "_prompt_missing",
        "_request",
        "_seen",
        "_top_logprobs",
        "answered",
        "template",
    )

    def __init__(
        self, request: GenerationRequest, abilities: Abilities = _DEFAULT, shelf: TemplateShelf | None = None
    ) -> None:
        self._request = request
        self._abilities = abilities
        self._logprobs = request.logprobs
        self._top_logprobs = request.top_logprobs
        self._logits = uses_logits(request, abilities)
        self._cached = request.cached_tokens and abilities.cached_tokens is not None
        self._prompt_missing = request.prompt_logprobs is not None and len(request.prompt.ids) > 1
        self._plain = not (self._logprobs or self._logits or self._prompt_missing)
        self.template = TokenTemplate() if shelf is None or not self._plain else shelf.template(request.id)
        self._seen = 0
        self.answered = False

    def read(
        self, response: service_pb2.ModelInferResponse, *, final: bool, message: bytes | None = None
    ) -> EngineChunk:
        """Turn a response into a chunk: its new ids, the log-probs of just these.

        Args:
            response: parsed.
            final: whether it is the last one.
            message: what it was parsed from, where ``template`` is to know those like it.

        Raises:
            EngineError: the request ended without any data, or log-probs that were asked for are missing.
        """
        if self._plain and not final:
            ids = _plain_ids(response)
            if ids is not None:
                self.answered = True
                if message is not None:
                    self.template.learn(message, response.raw_output_contents[0])
                return EngineChunk(ids)
        return self._read(response, final=final)

    def _read(self, response: service_pb2.ModelInferResponse, *, final: bool) -> EngineChunk:
        """Any response but the plain ones, which are most."""
        outputs = _outputs(response)
        raw_ids = outputs.get("output_ids")
        if raw_ids is None:
            if final and not self.answered:
                raise no_final_response()
            return EngineChunk(final=final)
        self.answered = True
        if len(raw_ids) % 4:
            raise EngineError(ErrorKind.INTERNAL, "The engine's answer could not be read: its ids are cut off.")
        raw_length = outputs.get("sequence_length")
        count = min(_int32(raw_length), len(raw_ids) // 4) if raw_length else len(raw_ids) // 4
        chunk = EngineChunk(ids=_ids(raw_ids, count), final=final)
        raw_prompt = outputs.get("num_input_tokens")
        if raw_prompt:
            chunk.prompt_tokens = _int32(raw_prompt)
        if self._prompt_missing:
            self._read_prompt(response, outputs, chunk)
        if final:
            self._read_end(outputs, chunk)
        if count and self._logprobs:
            if self._logits:
                self._read_logits(response, chunk)
            else:
                chunk.logprobs = self._new_logprobs(outputs.get("output_log_probs"), count)
                if self._top_logprobs:
                    chunk.top_logprobs = self._alternatives(outputs, count)
        self._seen += count
        return chunk

    def _read_end(self, outputs: dict[str, bytes], chunk: EngineChunk) -> None:
        chunk.finish_reason = _finish(outputs.get("finish_reason"))
        if self._prompt_missing and chunk.finish_reason != "cancelled":
            raise _missing("log-probs of the prompt")
        if self._cached:
            chunk.cached_tokens = self._cached_tokens(outputs)

    def _new_logprobs(self, raw: bytes | None, count: int) -> Sequence[float]:
        # The list is cumulative when streaming, and may have an entry more or fewer at its end (contract section 2.5).
        values = memoryview(raw or b"")[4 * self._seen : 4 * (self._seen + count)].cast("f").tolist()
        if len(values) != count:
            raise _missing("log-probs")
        return values

    def _alternatives(self, outputs: dict[str, bytes], count: int) -> Sequence[Sequence[tuple[int, float]]]:
        found = _table(outputs.get("top_log_probs_ids"), outputs.get("top_log_probs"), count, self._top_logprobs)
        if found is None:
            raise _missing("alternatives")
        return found

    def _read_logits(self, response: service_pb2.ModelInferResponse, chunk: EngineChunk) -> None:
        rows = read_rows(response, "generation_logits")
        if rows is None:
            raise _missing("logits")
        chunk.logprobs, chunk.top_logprobs = log_probs(rows, chunk.ids, self._top_logprobs, self._vocab_size())

    def _read_prompt(
        self, response: service_pb2.ModelInferResponse, outputs: dict[str, bytes], chunk: EngineChunk
    ) -> None:
        ids, wanted = self._request.prompt.ids, self._request.prompt_logprobs or 0
        if self._abilities.prompt_logprobs == "logits":
            rows = read_rows(response, "context_logits")
            if rows is None:
                return
            if len(rows) != len(ids):  # what the KV cache had is not computed again (contract section 2.6)
                raise _missing("logits of the whole prompt")
            chunk.prompt_logprobs, top = log_probs(rows, ids[1:], wanted, self._vocab_size())
            chunk.prompt_top_logprobs = top if wanted else None
        else:
            raw = outputs.get("prompt_log_probs")
            if raw is None:
                return
            values = memoryview(raw).cast("f").tolist()
            if len(values) != len(ids) - 1:
                raise _missing("log-probs of every prompt token")
            chunk.prompt_logprobs = values
            if wanted:
                found = _table(
                    outputs.get("prompt_top_log_probs_ids"), outputs.get("prompt_top_log_probs"), len(values), wanted
                )
                chunk.prompt_top_logprobs = found
                if found is None:
                    raise _missing("alternatives of the prompt")
        self._prompt_missing = False

    def _vocab_size(self) -> int | None:
        return self._abilities.vocab_size or self._request.vocab_size

    def _cached_tokens(self, outputs: dict[str, bytes]) -> int | None:
        prompt = len(self._request.prompt.ids)
        exact = outputs.get("num_cached_tokens")
        if exact:
            return max(0, min(_int32(exact), prompt))
        blocks = outputs.get("kv_cache_reused_blocks")
        if self._abilities.cached_tokens != "blocks" or not blocks:
            return None
        # Whole blocks: what was reused of a partly filled one is not told, and not guessed.
        return max(0, min(_int32(blocks) * self._abilities.tokens_per_block, prompt))


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


def _table(
    raw_ids: bytes | None, raw_values: bytes | None, rows: int, wanted: int
) -> Sequence[Sequence[tuple[int, float]]] | None:
    """Alternatives by row, ``wanted`` of each at most; None when the tensors do not fit."""
    ids = _ids(raw_ids or b"", len(raw_ids or b"") // 4)
    values: Sequence[float] = memoryview(raw_values or b"").cast("f").tolist()
    if not ids or len(ids) != len(values) or len(ids) % rows:
        return None
    width = len(ids) // rows
    pairs = list(zip(ids, values, strict=True))
    return [pairs[start : start + min(width, wanted)] for start in range(0, len(pairs), width)]


def _missing(what: str) -> EngineError:
    return EngineError(ErrorKind.INTERNAL, f"The engine did not return the {what} that were asked for.")
