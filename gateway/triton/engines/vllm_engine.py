"""Text and JSON to a model of Triton's vLLM backend; text back, or token ids with log-probs (wire contract 10)."""

from __future__ import annotations

import json
from typing import Any

from tritonclient.grpc import service_pb2

from gateway.contract import VLLM
from gateway.generation.engine import EngineFeatures
from gateway.generation.request import GenerationRequest
from gateway.triton.connection import Connection
from gateway.triton.engines.text_engine import TextEngine
from gateway.triton.engines.vllm_reader import VllmReader
from gateway.triton.error_mapping import unsupported
from gateway.triton.model_view import ModelView
from gateway.triton.vllm_dialect import GUIDE_KEYS, RANDOMNESS, SAMPLING_KEYS, VllmDialect

# vLLM takes what is below for greedy by itself.
_GREEDY_BELOW = 1e-5
_RETURNED = ("finish_reason", "num_input_tokens", "num_output_tokens")


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
        self._refuse(request)
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
