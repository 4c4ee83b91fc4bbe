"""The dialect of Triton's vLLM backend: text and JSON in; text, or token ids with log-probs, out (contract 10).

Triton reports neither the backend's version nor vLLM's. The inputs distinguish versions, and a probe finds the
parameter for guides.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tritonclient.grpc import service_pb2

from gateway.generation.engine import (
    Capability,
    EngineChunk,
    EngineError,
    EngineFeatures,
    ErrorKind,
    MalformedOutputError,
    TokenGenerator,
)
from gateway.generation.request import GenerationRequest
from gateway.text.contract import VLLM
from gateway.text.guides.guide import GuideKind
from gateway.triton.abilities import MAX_TOP_LOGPROBS, NO_OPTIONS, EngineOptions
from gateway.triton.connection import Connection
from gateway.triton.dialects.dialect import DiscoveryError
from gateway.triton.dialects.text_engine import ResponseReader, TextDialect, TextEngine, decoded, estimates
from gateway.triton.engine_probe import REJECTIONS, ask
from gateway.triton.error_mapping import TOO_LONG, unsupported
from gateway.triton.guides import smallest_guide
from gateway.triton.model_view import ModelView
from gateway.triton.parameters import GROUPS, GUIDED, INPUTS, text_capabilities
from gateway.triton.pipeline import Models

_COUNTS = ("num_input_tokens", "num_output_tokens")
_RETURNED = ("finish_reason", *_COUNTS)
_OF_IDS = (*_COUNTS, "logprobs", "cumulative_logprob")
_OFF = 1e-2  # absolute and relative tolerance of a sum of log-probs
_NO_IDS = "The engine did not return the requested tokens."
_ASKED_FOR_IDS = frozenset({"return_logprobs", "return_num_output_tokens", "return_finish_reason"})
_ANSWERED_WITH_IDS = frozenset({"logprobs", "num_output_tokens", "finish_reason"})

RANDOMNESS = ("top_p", "top_k", "min_p")
"""Those without which a greedy request goes."""

GUIDE_FIELDS = ("structured_outputs", "guided_decoding")
"""The sampling parameter for guides: of the backend from 25.11 on, and of 25.01 to 25.10."""

GUIDE_KEYS: Mapping[GuideKind, str] = {
    "json": "json_object",
    "json_schema": "json",
    "regex": "regex",
    "ebnf_grammar": "grammar",
}
"""In it the key of each kind of guide. Structural tags are left out: vLLM's are of other forms, version by version."""


@dataclass(frozen=True, slots=True)
class VllmForm:
    """The form of the requests and responses of one model.

    Attributes:
        token_ids: whether answers can carry token ids, as keys of their log-probs.
        counts: whether it counts tokens.
        finishes: whether it reports a finish reason.
        guide_field: the sampling parameter for guides; None without one.
    """

    token_ids: bool
    counts: bool
    finishes: bool
    guide_field: str | None

    def needs_ids(self, request: GenerationRequest) -> bool:
        """Tell whether a request needs token ids, which cost vLLM the log-probs of each token."""
        params = request.params
        return self.token_ids and bool(
            params.logprobs
            or params.return_token_ids
            or params.stop_token_ids
            or params.visible_ids
            or params.min_tokens
            or not params.skip_special_tokens
        )

    def losses(self) -> tuple[str, ...]:
        """List what answers in this form lack, one sentence each, without a capital and without a full stop."""
        found = []
        if not self.counts:
            found.append(
                "the backend before 24.12 does not report token counts: usage is counted by tokenizing the text again"
            )
        if not self.finishes:
            found.append(
                "the backend before 24.12 does not report finish reasons: finish_reason is derived from the "
                "estimated count"
            )
        if self.token_ids:
            found.append("completion tokens are estimated where a stop string cuts a response of several of them")
        return tuple(found)


def read_form(model: ModelView, guide_field: str | None) -> VllmForm:
    """Find the form of a model by its declarations.

    Args:
        model: model of the vLLM backend.
        guide_field: the sampling parameter for guides, by the probe.
    """
    return VllmForm(
        token_ids=model.inputs >= _ASKED_FOR_IDS and model.outputs >= _ANSWERED_WITH_IDS,
        counts="return_num_output_tokens" in model.inputs and "num_output_tokens" in model.outputs,
        finishes="return_finish_reason" in model.inputs and "finish_reason" in model.outputs,
        guide_field=guide_field,
    )


def _guide_fields(model: ModelView) -> tuple[str, ...]:
    """The sampling parameters that may take guides, the likelier first; none of a backend that is older than both."""
    if "return_finish_reason" not in model.inputs:  # came with 24.12
        return ()
    return GUIDE_FIELDS if "embedding_request" in model.inputs else GUIDE_FIELDS[::-1]  # came with 25.12


_NOT_THERE = "The vLLM backend has no parameter for it."
_IMPOSSIBLE = {
    "drafts": "The vLLM backend does not accept draft tokens; speculative decoding is configured in its model.json.",
    "beams": "The sampling parameters of vLLM have no beam search; use `n` instead.",
    "guides": "This vLLM backend does not support guided decoding; it is available since 25.01.",
    **dict.fromkeys(
        ("token ids", "log-probs"),
        "This vLLM backend returns text without token ids; they are available since 24.12.",
    ),
    "logit_bias": "The vLLM backend reads the ids of a bias as strings, which vLLM rejects; use `bad_words`.",
    "prompt_logprobs": "The vLLM backend does not return log-probs of prompts.",
    "prompt_token_ids": "Prompts are sent to the vLLM backend as text.",
    "prompt_table": "Virtual tokens cannot be sent as text.",
    "cached_tokens": "The vLLM backend does not report it.",
    "cache_salt": f"{_NOT_THERE[:-1]}; set enable_prefix_caching to false in its model.json.",
}
_NOTES: Mapping[str, str] = {
    "temperature": "0 is greedy; vLLM raises values between 0 and 0.01 to 0.01",
    **dict.fromkeys(GROUPS["penalties"], "vLLM counts the tokens of the answer, like OpenAI"),
    "repetition_penalty": "vLLM counts the tokens of the prompt too",
    "bad_words": "vLLM bans each as its usual token sequences, with and without a space before it",
}
_TAKEN = ("top_p", "top_k", "min_p", "repetition_penalty", "min_tokens", *GROUPS["penalties"])
_SAMPLING = {name: INPUTS[name].neutral for name in _TAKEN}


class VllmDialect(TextDialect):
    """The dialect of Triton's vLLM backend, which takes text and parameters as JSON (wire contract 10)."""

    path = "vllm"
    kind = "vLLM"
    name = "a model of the vLLM backend"
    served = "one of Triton's vLLM backend (text_input and sampling_parameters)"
    lacking = "{name} is not a model of the vLLM backend (text_input and sampling_parameters); set path: auto"
    spec = VLLM
    always = frozenset({"text_input", "stream", "sampling_parameters"})

    def recognizes(self, model: ModelView) -> bool:
        """Tell whether a model takes text and JSON; see ``Dialect``."""
        takes = {"text_input", "sampling_parameters"} <= model.inputs
        return takes and not model.steps and "text_output" in model.outputs

    def completed(self, model: ModelView) -> ModelView:
        """Add the inputs and outputs that the backend's newest known version adds when it loads the model."""
        if model.backend != "vllm":
            return model
        inputs, outputs = ({tensor.name for tensor in tensors} for tensors in (VLLM.inputs, VLLM.outputs))
        return replace(
            model, inputs=model.inputs | inputs, outputs=model.outputs | outputs, decoupled=True, batched=False
        )

    def check_model(self, model: ModelView) -> None:
        """Reject a model that does not stream or has batches; see ``TextDialect``."""
        if not (model.decoupled and "stream" in model.inputs):
            raise DiscoveryError(
                f"model {model.name!r} of the vLLM backend must be decoupled and have the input stream; set"
                " model_transaction_policy { decoupled: true } in its config.pbtxt, or remove the tensors from its"
                " config.pbtxt"
            )
        if model.batched:
            raise DiscoveryError(f"model {model.name!r} of the vLLM backend has a max_batch_size above 0; set it to 0")

    def assume(self, models: Models) -> Models:
        """Assume the more probable parameter for guides; see ``Dialect``."""
        return replace(models, guide_field=next(iter(_guide_fields(models.entry)), None))

    async def learn(self, engine: TokenGenerator, make: Callable[[Models], TokenGenerator], models: Models) -> Models:
        """Find the sampling parameter for guides, which depends on the version, by a token with a guide of each form.

        A failure for another reason leaves the assumed one. See ``Dialect``.
        """
        del engine
        for field in _guide_fields(models.entry):
            found = replace(models, guide_field=field)
            probed = make(found)
            error = await ask(probed, guide=smallest_guide(probed.features.guide_types))
            if error is None or error.kind not in REJECTIONS:
                return found
        return models

    def make(
        self, connection: Connection, models: Models, reason: str, options: EngineOptions = NO_OPTIONS
    ) -> VllmEngine:
        """Make the engine; see ``Dialect``."""
        form = read_form(models.entry, models.guide_field)
        features = self.features(
            models,
            reason,
            options,
            token_ids=form.token_ids,
            logprobs=form.token_ids,
            max_top_logprobs=MAX_TOP_LOGPROBS if form.token_ids else 0,
            capabilities=_capabilities(form),
            guide_types=frozenset(GUIDE_KEYS) if form.guide_field else frozenset(),
            adds_special_tokens=True,
            hides_special_tokens=True,
            adapters="name",
            estimates=estimates(counts=form.counts, finishes=form.finishes),
        )
        return VllmEngine(connection, models.entry, features, form)

    def lost(self, models: Models, options: EngineOptions) -> tuple[str, ...]:
        """List what answers lose; see ``Dialect``."""
        del options
        return read_form(models.entry, models.guide_field).losses()


def _capabilities(form: VllmForm) -> dict[str, Capability]:
    keys = {name: name for name in ("temperature", *_SAMPLING, "seed", "ignore_eos", "bad_words")}
    keys |= {"length": "max_tokens", "lora": "lora_name"}
    return text_capabilities(
        _NOT_THERE,
        _IMPOSSIBLE,
        {
            **{name: _by(key, _NOTES.get(name, "")) for name, key in keys.items()},
            "stream": Capability("native", "By decoupled responses."),
            "n": Capability("emulated", "As parallel engine requests with the seeds seed, seed + 1 and so on."),
            "stop": Capability(
                "emulated", "Matched on the text in the gateway, which then ends the request in the engine."
            ),
            **_of_ids(form),
            **(_guides(form.guide_field) if form.guide_field else {}),
        },
    )


def _by(key: str, note: str = "", limit: int | None = None) -> Capability:
    return Capability("native", f"By vLLM's sampling parameter {key}{'; ' + note if note else ''}.", limit)


def _of_ids(form: VllmForm) -> dict[str, Capability]:
    if not form.token_ids:
        return {"min_tokens": _by("min_tokens", "stop strings still end the answer")}
    own = "from the distribution set by logprobs_mode in its model.json, by default the model's distribution"
    return {
        "token ids": Capability(
            "emulated", "The ids are taken from vLLM's log-probs, which the gateway then requests."
        ),
        "stop_token_ids": _by("stop_token_ids", "the id counts as a token of the answer"),
        "logprobs": _by("logprobs", own),
        "top_logprobs": _by("logprobs", f"{own}; at most as many as max_logprobs in its model.json", MAX_TOP_LOGPROBS),
    }


def _guides(field: str) -> dict[str, Capability]:
    found = {}
    for name, needed in GUIDED.items():
        taken = ", ".join(kind for kind in needed if kind in GUIDE_KEYS)
        found[name] = _by(field, f"guides of the kind {taken}" if taken else "")
    return found


class VllmEngine(TextEngine):
    """An Engine that calls a model of the vLLM backend.

    Args:
        connection: connection to Triton.
        model: model of the vLLM backend.
        features: its features by discovery.
        form: form of its requests and responses.
    """

    def __init__(self, connection: Connection, model: ModelView, features: EngineFeatures, form: VllmForm) -> None:
        super().__init__(connection, model, VLLM, features)
        self._form = form

    def _reader(self, request: GenerationRequest) -> VllmReader:
        return VllmReader(request, self._form)

    def encode(self, request: GenerationRequest) -> service_pb2.ModelInferRequest:
        """Convert a request to tensors; see ``TextEngine.encode``.

        Requests are always streamed: whole answers begin with the prompt before 24.06, and stop strings end them early.
        """
        self._reject(request)
        encoder, form = self._encoder, self._form
        returned = [name for name in _RETURNED if name in encoder.model.outputs and encoder.declares(f"return_{name}")]
        if form.needs_ids(request):
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
        sent |= {name: value for name, off in _SAMPLING.items() if (value := getattr(params, name)) != off}
        if params.greedy:
            sent = {name: value for name, value in sent.items() if name not in RANDOMNESS} | {"temperature": 0.0}
        if params.seed is not None:
            sent["seed"] = request.seed
        if params.ignore_eos:
            sent["ignore_eos"] = True
        if ends := list(dict.fromkeys((*request.end_ids, *params.stop_token_ids))):
            sent["stop_token_ids"] = ends
        if params.bad_words:
            sent["bad_words"] = list(params.bad_words)
        if self._form.needs_ids(request):
            sent["logprobs"] = params.top_logprobs
        return sent | self._guide(request) | self._lora(request)

    def _guide(self, request: GenerationRequest) -> dict[str, str]:
        guide, field = request.params.guide, self._form.guide_field
        if guide is None or field is None:
            return {}
        value = True if guide.kind == "json" else guide.text
        return {field: json.dumps({GUIDE_KEYS[guide.kind]: value}, ensure_ascii=False)}  # vLLM reads a string of JSON

    def _lora(self, request: GenerationRequest) -> dict[str, str]:
        if request.lora is None:
            return {}
        if not request.lora.name:
            raise unsupported("model", self._encoder.model.name, "LoRA")
        return {"lora_name": request.lora.name}


class VllmReader(ResponseReader):
    """Reads the responses of one request: new text with its count, or new ids with their log-probs.

    Args:
        request: the request.
        form: form of the request and its responses.
    """

    def __init__(self, request: GenerationRequest, form: VllmForm) -> None:
        self._ids = form.needs_ids(request)
        super().__init__(_OF_IDS if self._ids else _COUNTS, finishes=form.finishes)
        self._counts = form.counts
        self._top = request.params.top_logprobs
        self._vocab = request.vocab_size
        self._most = request.max_tokens
        # Whether the token limit alone ends the answer.
        self._unending = request.params.ignore_eos and not request.params.stop_token_ids and not form.finishes
        self._tokens, self._sum = 0, 0.0

    def _take(self, chunk: EngineChunk, outputs: dict[str, bytes], raw: bytes | None) -> None:
        if raw is not None:
            chunk.prompt_tokens = self._outputs.number(outputs, "num_input_tokens")
            self._take_new(chunk, outputs, raw)
        if chunk.final and self._unending:
            chunk.finish_reason = "length"
        if chunk.final and self._counts and self._tokens == 0 and chunk.finish_reason == "length":
            # vLLM's first engine ends a prompt that is too long so, without a token.
            raise EngineError(ErrorKind.CONTEXT_LENGTH, TOO_LONG, "an answer without a token, ended by its length")

    def _take_new(self, chunk: EngineChunk, outputs: dict[str, bytes], raw: bytes) -> None:
        counted = self._outputs.number(outputs, "num_output_tokens")
        self._tokens += counted or bool(raw)
        if self._ids:
            self._read_ids(chunk, outputs, counted)
            return
        chunk.text = decoded(raw)
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
        reported = memoryview(raw).cast("f")[0] if raw is not None and len(raw) == 4 else None
        if reported is None or not abs(reported - self._sum) <= _OFF * (1 + abs(reported)):
            raise MalformedOutputError(f"log-probs with the sum {self._sum}, but vLLM reports {reported}", _NO_IDS)
