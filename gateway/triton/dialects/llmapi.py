"""The dialect of the stock model of the LLM API, in each of its versions: text in and out (wire contract 8).

The declared inputs tell how the model serves a request. Which parameters TensorRT-LLM itself ignores depends on its
version, which the operator sets because Triton does not report it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from tritonclient.grpc import service_pb2

from gateway.generation.engine import Capability, EngineChunk, EngineFeatures, MalformedOutputError, TokenGenerator
from gateway.generation.request import GenerationRequest
from gateway.text.contract import LLMAPI
from gateway.triton.abilities import NO_OPTIONS, EngineOptions
from gateway.triton.connection import Connection
from gateway.triton.dialects.dialect import DiscoveryError, decoupled
from gateway.triton.dialects.text_engine import ResponseReader, TextDialect, TextEngine, decoded
from gateway.triton.engine_probe import ask
from gateway.triton.error_mapping import LLMAPI_WITH_ADAPTERS, unsupported
from gateway.triton.model_view import ModelView
from gateway.triton.parameters import INPUTS, ONE_EVENT, text_capabilities
from gateway.triton.pipeline import Models
from gateway.triton.tensors.request_encoder import RequestEncoder
from gateway.triton.tensors.request_tensors import put_sampling
from gateway.triton.versions import VERSIONS, Version, has_change

_OUTPUTS = ("text_output", "finish_reason")

TextForm = Literal["whole", "cumulative", "delta"]
"""The text of a response: all of the answer, which has no other; all of it so far; what is new of it."""


@dataclass(frozen=True, slots=True)
class LlmApiForm:
    """The form of the requests and responses of one model.

    Attributes:
        text: the text of its responses; ``whole`` where it does not stream.
        adds_special_tokens: whether it puts the tokenizer's special tokens around a prompt's text.
        certain_of_special_tokens: whether that is known; of 0.20 and 0.21 it is not.
        cancels: whether a cancelled gRPC call ends its request in the engine.
        ends_at_eos: whether the tokenizer's own end token alone ends an answer.
        ignored: request parameters that TensorRT-LLM drops or may drop silently, each with the reason of its rejection.
    """

    text: TextForm
    adds_special_tokens: bool
    certain_of_special_tokens: bool
    cancels: bool
    ends_at_eos: bool
    ignored: Mapping[str, str]

    @property
    def streams(self) -> bool:
        """Whether the engine returns a response for each step."""
        return self.text != "whole"

    def losses(self) -> tuple[str, ...]:
        """List what answers in this form lack, one sentence each, without a capital and without a full stop."""
        found = ["completion tokens are counted by tokenizing the text again unless the finish reason is length"]
        if not self.streams:
            found.append("the model returns one response, so that a stream has the whole text in one event")
        if not self.cancels:
            found.append("this version ignores cancellation: a cancelled request continues to its end in the engine")
        if not self.certain_of_special_tokens:
            found.append(
                "it is unknown whether this version adds BOS to prompts; the gateway assumes that it does, like 1.0"
            )
        found.append("the Triton model does not check its engine: it stays ready when the engine has failed")
        return tuple(found)


def read_form(model: ModelView, options: EngineOptions) -> LlmApiForm:
    """Find the version of a model by its declared inputs, and its engine's behaviour by the operator's version.

    Upstream's models differ: that of 0.19 has ``sampling_param_beam_width``, those from 1.0 on have ``stop``, and the
    first that passes ``streaming`` on to its engine also has ``lora_id``. The policy decides, not the model's yaml: a
    model that is not decoupled answers once.

    Args:
        model: the LLM API's model.
        options: the operator's settings.
    """
    current = "stop" in model.inputs
    oldest = "sampling_param_beam_width" in model.inputs
    version = options.version
    return LlmApiForm(
        text=_text(model, options),
        adds_special_tokens=not oldest,
        certain_of_special_tokens=current or oldest,
        cancels=current,
        ends_at_eos=not has_change(version, "ends_by_generation_config"),
        ignored={
            name: why for since, each in VERSIONS.items() if (why := _ignored(version, since)) for name in each.heeded
        },
    )


def _text(model: ModelView, options: EngineOptions) -> TextForm:
    if not model.decoupled:
        return "whole"
    if options.llmapi_text != "auto":
        return options.llmapi_text
    return "cumulative" if "lora_id" in model.inputs else "whole"


def _ignored(version: Version | None, since: Version) -> str | None:
    first = ".".join(map(str, since))
    if version is None:
        advice = "and Triton does not report the version; set `engine_version`"
        return f"TensorRT-LLM before {first} silently ignores it, {advice}."
    if version < since:
        return f"TensorRT-LLM before {first} silently ignores it, and this version is {'.'.join(map(str, version))}."
    return None


_NAMES = frozenset(tensor.name for tensor in LLMAPI.inputs)
_NO_INPUT = "The LLM API's model in Triton has no input for it."
_TEXT_ONLY = "The LLM API's model returns text without token ids."
_NO_LOGPROBS = "The LLM API's model returns text without token ids and log-probs."
_IMPOSSIBLE = {
    "token ids": _TEXT_ONLY,
    "log-probs": _NO_LOGPROBS,
    "prompt_logprobs": _NO_LOGPROBS,
    "drafts": "The LLM API's model does not accept draft tokens; speculative decoding is configured in its model.yaml.",
    "beams": "The LLM API's model does not return the beams; use `n` instead.",
    "guides": "The LLM API's model has no inputs for guided decoding.",
    "stop_token_ids": f"{_TEXT_ONLY[:-1]}; use `stop` with a text.",
    "ignore_eos": "The LLM API's model always stops at its end token.",
    "skip_special_tokens": "The LLM API's model leaves special tokens out of its text.",
    "prompt_token_ids": "Prompts are sent to the LLM API's model as text.",
    "cached_tokens": "The LLM API's model reports blocks without their size.",
    "prompt_table": "Virtual tokens cannot be sent as text.",
    "cache_salt": f"{_NO_INPUT[:-1]}; set enable_block_reuse to false in its model.yaml.",
}
_NOTES = {
    "temperature": "0 is greedy, by top_k 1; other values are sent with top_p, which some versions need for sampling",
    "seed": "repeatable at best for a single request: the engine's sampler mixes the seeds of a batch",
}


class LlmApiDialect(TextDialect):
    """The dialect of the stock model of the LLM API, which takes text (wire contract 1.7)."""

    path = "llmapi"
    kind = "LLM API"
    name = "a model of the LLM API"
    served = "the model of its LLM API (text_input and sampling_param_*)"
    lacking = "model {name} has no inputs sampling_param_*"
    spec = LLMAPI
    # Without any of these it gives another answer than was asked for, or does not say why it ended.
    always = frozenset(
        {
            *("text_input", "streaming", "return_finish_reason"),
            *("sampling_param_max_tokens", "sampling_param_exclude_input_from_output"),
        }
    )
    cures: ClassVar = {"Set model_transaction_policy { decoupled: true }.": decoupled}

    def recognizes(self, model: ModelView) -> bool:
        """Tell whether a model takes text and sampling parameters; see ``Dialect``."""
        sampling = any(name.startswith("sampling_param_") for name in model.inputs)
        return sampling and not model.steps and "text_input" in model.inputs

    def check_model(self, model: ModelView) -> None:
        """Reject a model that lacks tensors or has batches; see ``TextDialect``."""
        lacks = sorted((self.always - model.inputs) | ({"text_output", "finish_reason"} - model.outputs))
        if lacks:
            raise DiscoveryError(
                f"model {model.name!r} of the LLM API lacks tensors of the stock one: {', '.join(lacks)}"
            )
        if model.batched:
            raise DiscoveryError(
                f"model {model.name!r} of the LLM API has a max_batch_size above 0, which its code does not support; "
                "set it to 0"
            )

    async def learn(self, engine: TokenGenerator, make: Callable[[Models], TokenGenerator], models: Models) -> Models:
        """Reject a model whose own error says that its settings fail every request; see ``Dialect``."""
        del make
        error = await ask(engine)
        if error is not None and error.message == LLMAPI_WITH_ADAPTERS:
            raise DiscoveryError(broken_by_adapters(engine.features.model))
        return models

    def make(
        self, connection: Connection, models: Models, reason: str, options: EngineOptions = NO_OPTIONS
    ) -> LlmApiEngine:
        """Make the engine; see ``Dialect``."""
        entry = models.entry
        form = read_form(entry, options)
        features = self.features(
            models,
            reason,
            options,
            capabilities=llmapi_capabilities(entry, form),
            adds_special_tokens=form.adds_special_tokens,
            hides_special_tokens=True,
            ends_at_eos=form.ends_at_eos,
            adapters="path",
            streams="pieces" if form.streams else "whole",
            estimates=frozenset({"completion_tokens"}),
        )
        return LlmApiEngine(connection, entry, features, form)

    def lost(self, models: Models, options: EngineOptions) -> tuple[str, ...]:
        """List what answers lose; see ``Dialect``."""
        return read_form(models.entry, options).losses()


def broken_by_adapters(model: str) -> str:
    """Make the error of a model before 1.3 that loads adapters, which fail every request."""
    return f"model {model!r}: {LLMAPI_WITH_ADAPTERS.rstrip('.')}; remove lora_config, or upgrade to 1.3"


def llmapi_capabilities(model: ModelView, form: LlmApiForm) -> dict[str, Capability]:
    """Decide how each request parameter that depends on the engine is served.

    Args:
        model: the LLM API's model.
        form: form of its requests and responses.

    Returns:
        A capability by the name of OpenAI's parameter or of the extension.
    """
    encoder = RequestEncoder(model, LLMAPI)

    def by(tensor: str, note: str = "", limit: int | None = None) -> Capability:
        return encoder.capability(tensor, f"By the engine's input {tensor}{'; ' + note if note else ''}.", limit)

    def by_table(name: str) -> Capability:
        return by(encoder.tensor(name), _NOTES.get(name, INPUTS[name].note), INPUTS[name].limit)

    stop = "Matched on the text in the gateway, which then ends the request"
    if not form.streams:
        stop = "The gateway cuts the text; the engine generates the rest of the answer"
    elif not form.cancels:
        stop += ", but not in the engine, which continues to the end"
    found = text_capabilities(
        _NO_INPUT,
        _IMPOSSIBLE,
        {
            **{name: by_table(name) for name in INPUTS if encoder.tensor(name) in _NAMES},
            "length": by("sampling_param_max_tokens"),
            "lora": by("lora_id"),
            "stream": Capability("native", "By decoupled responses.") if form.streams else ONE_EVENT,
            "n": Capability("emulated", "As parallel engine requests."),
            "stop": Capability("emulated", f"{stop}."),
        },
    )
    return found | {name: Capability("impossible", why) for name, why in form.ignored.items()}


class LlmApiEngine(TextEngine):
    """An Engine that calls the LLM API's model.

    Args:
        connection: connection to Triton.
        model: the LLM API's model.
        features: its features by discovery.
        form: form of its requests and responses.
    """

    def __init__(self, connection: Connection, model: ModelView, features: EngineFeatures, form: LlmApiForm) -> None:
        super().__init__(connection, model, LLMAPI, features)
        self._form = form

    def _reader(self, request: GenerationRequest) -> LlmApiReader:
        del request
        return LlmApiReader(self._form.text)

    def encode(self, request: GenerationRequest) -> service_pb2.ModelInferRequest:
        """Convert a request to tensors; see ``TextEngine.encode``.

        Values with defaults in the model are always sent: it would stop after 32 tokens, and repeat the prompt.
        """
        encoder = self._encoder
        self._reject(request)
        wire = encoder.request(request.id, _OUTPUTS)
        prompt = request.prompt
        encoder.put(wire, "text_input", prompt.bare_text if self._form.adds_special_tokens else prompt.text)
        encoder.put(wire, "streaming", self._form.streams)
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


class LlmApiReader(ResponseReader):
    """Reads the responses of one request.

    Args:
        text: the form of a response's text. The texts themselves do not tell: "ha" and then "haha" may be either form.
    """

    def __init__(self, text: TextForm) -> None:
        super().__init__(finishes=True)
        self._text = text
        self._so_far = b""

    def _take(self, chunk: EngineChunk, outputs: dict[str, bytes], raw: bytes | None) -> None:
        del outputs
        chunk.text = "" if raw is None else self._new(raw)

    def _new(self, raw: bytes) -> str:
        """Return the part of a response's text that is new.

        Raises:
            MalformedOutputError: a cumulative text does not continue the one before, or a model that answers once
                answers again.
        """
        if self._text == "cumulative":
            if not raw.startswith(self._so_far):
                detail = f"a cumulative text of {len(raw)} bytes does not continue the {len(self._so_far)} before"
                raise MalformedOutputError(detail)
            raw, self._so_far = raw[len(self._so_far) :], raw
        elif self._text == "whole" and self._answered:
            raise MalformedOutputError("a second text from a model that should return one response")
        return decoded(raw)
