"""Text and JSON to a model of Triton's vLLM backend; text back, or token ids with log-probs (wire contract 10)."""

from __future__ import annotations

import json
from typing import Any

from tritonclient.grpc import service_pb2

from gateway.generation.engine import EngineChunk, EngineError, EngineFeatures, ErrorKind, MalformedOutputError
from gateway.generation.request import GenerationRequest
from gateway.text.contract import VLLM
from gateway.triton.connection import Connection
from gateway.triton.dialects.text_engine import TextEngine
from gateway.triton.error_mapping import TOO_LONG, no_final_response, read_finish, unsupported
from gateway.triton.model_view import ModelView
from gateway.triton.tensors.output_tensors import OutputReader
from gateway.triton.vllm_dialect import GUIDE_KEYS, RANDOMNESS, SAMPLING_KEYS, VllmDialect

# vLLM takes what is below for greedy by itself.
_GREEDY_BELOW = 1e-5
_RETURNED = ("finish_reason", "num_input_tokens", "num_output_tokens")
_OF_TEXT = ("text_output", "finish_reason", "num_input_tokens", "num_output_tokens")
_OF_IDS = (*_OF_TEXT, "logprobs", "cumulative_logprob")
_OFF = 1e-2  # by which a sum of log-probs may be off, and that share of it
_NO_IDS = "The engine did not return the requested tokens."


class VllmEngine(TextEngine):
    """An Engine that calls a model of the vLLM backend.

    Args:
        connection: the way to Triton.
        model: of the vLLM backend.
        features: what was discovered of it.
        dialect: the way to ask it.
    """

    def __init__(
        self, connection: Connection, model: ModelView, features: EngineFeatures, dialect: VllmDialect
    ) -> None:
        super().__init__(connection, model, VLLM, features)
        self._dialect = dialect

    def _reader(self, request: GenerationRequest) -> VllmReader:
        return VllmReader(request, self._dialect)

    def encode(self, request: GenerationRequest) -> service_pb2.ModelInferRequest:
        """Turn a request into tensors; see ``TextEngine.encode``.

        It is always streamed: whole answers would begin with the prompt before 24.06, and stop strings end them early.
        """
        self._reject(request)
        encoder, dialect = self._encoder, self._dialect
        returned = [name for name in _RETURNED if name in encoder.model.outputs and encoder.declares(f"return_{name}")]
        if dialect.needs_ids(request):
            returned += ["logprobs", "cumulative_logprob"] if request.params.top_logprobs else ["logprobs"]
        wire = encoder.request(request.id, ("text_output", *returned))
        # vLLM puts the tokenizer's special tokens before a text.
        encoder.put(wire, "text_input", request.prompt.bare_text)
        encoder.put(wire, "stream", True)
        encoder.put(wire, "exclude_input_in_output", True)
        for name in returned:
            encoder.put(wire, f"return_{name}", True)
        encoder.put(wire, "sampling_parameters", json.dumps(self._sampling(request), ensure_ascii=False))
        return wire

    def _sampling(self, request: GenerationRequest) -> dict[str, Any]:
        """The sampling parameters. Stop strings are matched here, so that vLLM's own end always is that of a token."""
        params = request.params
        sent: dict[str, Any] = {"max_tokens": request.max_tokens, "temperature": params.temperature}
        values = {name: getattr(params, name) for name in SAMPLING_KEYS}
        sent |= {name: value for name, value in values.items() if value != SAMPLING_KEYS[name].off}
        if params.greedy or params.temperature < _GREEDY_BELOW:
            sent = {name: value for name, value in sent.items() if name not in RANDOMNESS} | {"temperature": 0.0}
        if params.seed is not None:
            sent["seed"] = request.seed
        if params.ignore_eos:
            sent["ignore_eos"] = True
        if ends := list(dict.fromkeys((*request.end_ids, *params.stop_token_ids))):
            sent["stop_token_ids"] = ends
        if params.bad_words:
            sent["bad_words"] = list(params.bad_words)
        if self._dialect.needs_ids(request):
            sent["logprobs"] = params.top_logprobs
        return sent | self._guide(request) | self._lora(request)

    def _guide(self, request: GenerationRequest) -> dict[str, str]:
        guide, field = request.params.guide, self._dialect.guide_field
        if guide is None or field is None:
            return {}
        value = True if guide.kind == "json" else guide.text
        return {field: json.dumps({GUIDE_KEYS[guide.kind]: value}, ensure_ascii=False)}  # JSON in JSON: so it is read

    def _lora(self, request: GenerationRequest) -> dict[str, str]:
        if request.lora is None:
            return {}
        if not request.lora.name:
            raise unsupported("model", self._encoder.model.name, "LoRA")
        return {"lora_name": request.lora.name}


class VllmReader:
    """Reads the responses of one request.

    Args:
        request: what was asked.
        dialect: the way in which it was asked.
    """

    __slots__ = (
        "_answered",
        "_dialect",
        "_ended",
        "_ids",
        "_most",
        "_outputs",
        "_sum",
        "_tokens",
        "_top",
        "_unending",
        "_vocab",
    )

    def __init__(self, request: GenerationRequest, dialect: VllmDialect) -> None:
        self._dialect = dialect
        self._ids = dialect.needs_ids(request)
        self._top = request.params.top_logprobs
        self._vocab = request.vocab_size
        self._most = request.max_tokens
        self._outputs = OutputReader(_OF_IDS if self._ids else _OF_TEXT)
        # Then the limit alone ends it.
        self._unending = request.params.ignore_eos and not request.params.stop_token_ids and not dialect.finishes
        self._answered = self._ended = False
        self._tokens = 0
        self._sum = 0.0

    def read(self, response: service_pb2.ModelInferResponse, *, final: bool) -> EngineChunk:
        """Turn a response into a chunk: its new text with its count, or its new ids with their log-probs.

        Raises:
            MalformedOutputError: its outputs are not what the contract says, or what was asked for is missing.
            EngineError: the request ended without any data, or the prompt has no place in the context.
        """
        outputs = self._outputs.read(response)
        chunk = EngineChunk(final=final)
        word = self._outputs.string(outputs, "finish_reason")
        if word:
            chunk.finish_reason, chunk.failure = read_finish(word, final=final)
            self._ended |= chunk.finish_reason is not None or chunk.failure is not None
        raw = self._outputs.string(outputs, "text_output")
        if raw is not None:
            self._answered = True
            chunk.prompt_tokens = self._outputs.number(outputs, "num_input_tokens")
            self._take(chunk, outputs, raw)
        if final:
            if self._unending:
                chunk.finish_reason = "length"
            self._check_end(chunk)
        return chunk

    def _check_end(self, chunk: EngineChunk) -> None:
        if not self._answered and chunk.failure is None:
            raise no_final_response()
        if self._dialect.finishes and not self._ended:
            raise MalformedOutputError("no finish_reason in the last response")
        if self._dialect.counts and self._tokens == 0 and chunk.finish_reason == "length":
            # vLLM's first engine ends a prompt that is too long so, without a token.
            raise EngineError(ErrorKind.CONTEXT_LENGTH, TOO_LONG, "an answer without a token, ended by its length")

    def _take(self, chunk: EngineChunk, outputs: dict[str, bytes], raw: bytes) -> None:
        counted = self._outputs.number(outputs, "num_output_tokens")
        self._tokens += counted or bool(raw)
        if self._ids:
            self._read_ids(chunk, outputs, counted)
            return
        try:
            chunk.text = raw.decode()
        except UnicodeDecodeError:
            raise MalformedOutputError("a text that is not UTF-8, or is cut within a character") from None
        # No stop strings are sent: what ends by itself ends with an end token, which is counted, and not of the answer.
        ends = chunk.finish_reason == "stop"
        if counted is not None and counted - ends >= bool(raw) and self._tokens <= self._most:
            chunk.output_tokens = counted - ends

    def _read_ids(self, chunk: EngineChunk, outputs: dict[str, bytes], counted: int | None) -> None:
        entries = self._entries(outputs)
        if counted is not None and len(entries) != counted:
            raise MalformedOutputError(
                f"log-probs of {len(entries)} tokens, but {counted} tokens were counted", _NO_IDS
            )
        chunk.ids = [entry[0][0] for entry in entries]
        chunk.logprobs = [entry[0][1] for entry in entries]
        if self._top:
            chunk.top_logprobs = [sorted(entry, key=lambda pair: -pair[1])[: self._top] for entry in entries]
            self._check_sum(outputs, chunk.logprobs)

    def _entries(self, outputs: dict[str, bytes]) -> list[list[tuple[int, float]]]:
        """For each new token id and log-prob, its own first, then those of the alternatives."""
        raw = self._outputs.string(outputs, "logprobs")
        try:
            listed: Any = json.loads(raw or b"null")  # the standard parser: it reads -Infinity, which vLLM writes
            entries = [[(int(index), float(of["logprob"])) for index, of in entry.items()] for entry in listed]
        except (ValueError, TypeError, KeyError, AttributeError):
            raise MalformedOutputError(f"log-probs that begin with {(raw or b'')[:32]!r}", _NO_IDS) from None
        for entry in entries:
            lowest, highest = (min(entry)[0], max(entry)[0]) if entry else (-1, -1)
            if lowest < 0 or (self._vocab is not None and highest >= self._vocab) or len(entry) > self._top + 1:
                detail = f"{len(entry)} ids from {lowest} to {highest}, but the vocabulary has {self._vocab} tokens"
                raise MalformedOutputError(detail, _NO_IDS)
        return entries

    def _check_sum(self, outputs: dict[str, bytes], logprobs: list[float]) -> None:
        """Hold the first of each entry against vLLM's own sum: nothing else tells which of them was drawn."""
        self._sum += sum(logprobs)
        raw = outputs.get("cumulative_logprob")
        told = memoryview(raw).cast("f")[0] if raw is not None and len(raw) == 4 else None
        if told is None or not abs(told - self._sum) <= _OFF * (1 + abs(told)):
            raise MalformedOutputError(f"log-probs with the sum {self._sum}, but vLLM reports {told}", _NO_IDS)
