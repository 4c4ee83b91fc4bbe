"""The dialect of plain text models, of no other known kind: text in and out (wire contract 11)."""

from __future__ import annotations

import codecs
from collections.abc import Iterator

from tritonclient.grpc import service_pb2

from gateway.generation.engine import (
    Capability,
    EngineChunk,
    EngineError,
    EngineFeatures,
    MalformedOutputError,
    TokenGenerator,
)
from gateway.generation.request import GenerationRequest
from gateway.text.contract import ANY, ModelSpec, TensorSpec
from gateway.triton import hints
from gateway.triton.abilities import NO_OPTIONS, EngineOptions
from gateway.triton.connection import Connection
from gateway.triton.dialects.dialect import DiscoveryError
from gateway.triton.dialects.text_engine import ResponseReader, TextDialect, TextEngine, estimates
from gateway.triton.engine_probe import ask
from gateway.triton.model_view import ModelView
from gateway.triton.parameters import INPUTS, ONE_EVENT, text_capabilities
from gateway.triton.pipeline import Models
from gateway.triton.tensors.request_encoder import RequestEncoder

PLAIN_TEXT = ModelSpec(
    name="text_model",
    inputs=(
        TensorSpec("text_input", "STRING", optional=False),
        TensorSpec("max_tokens", "INT32"),
        TensorSpec("stream", "BOOL", older="streaming"),
        TensorSpec("temperature", "FP32"),
        TensorSpec("top_p", "FP32"),
        TensorSpec("top_k", "INT32"),
        TensorSpec("min_p", "FP32"),
        TensorSpec("seed", "UINT64", older="random_seed"),
        TensorSpec("presence_penalty", "FP32"),
        TensorSpec("frequency_penalty", "FP32"),
        TensorSpec("repetition_penalty", "FP32"),
        TensorSpec("min_tokens", "INT32"),
        TensorSpec("exclude_input_in_output", "BOOL"),
        TensorSpec("return_finish_reason", "BOOL"),
        TensorSpec("return_num_input_tokens", "BOOL"),
        TensorSpec("return_num_output_tokens", "BOOL"),
    ),
    outputs=(
        TensorSpec("text_output", "STRING", (ANY,)),
        TensorSpec("finish_reason", "STRING"),
        TensorSpec("num_input_tokens", "INT32"),
        TensorSpec("num_output_tokens", "INT32"),
    ),
)
"""Any other model that takes and returns text: what it may declare beside the two, under the stock models' names."""

_RETURNED = ("finish_reason", "num_input_tokens", "num_output_tokens")
# Always sent where declared: the model's own defaults are not known. Other inputs are sent only where requested.
_ALWAYS = ("temperature", "top_p")
_NAMES = frozenset(tensor.name for tensor in PLAIN_TEXT.inputs)
_TEXT_ONLY = "The model returns text without token ids."


class PlainTextDialect(TextDialect):
    """The dialect of models that take and return text and are of no other known kind."""

    path = "text"
    kind = "text"
    name = "a plain text model"
    served = "another with text_input and text_output"
    lacking = (
        "{name} is not a plain text model (text_input and text_output), or a model of a more specific kind; set path: "
        "auto"
    )
    spec = PLAIN_TEXT
    always = frozenset(
        {
            *("text_input", "stream", "max_tokens", "exclude_input_in_output", *_ALWAYS),
            *(f"return_{name}" for name in _RETURNED),
        }
    )

    def recognizes(self, model: ModelView) -> bool:
        """Tell whether a model takes and returns text and is of no other kind; see ``Dialect``."""
        if model.steps or "end_id" in model.inputs:  # of TensorRT-LLM: without it answers go on to their limit
            return False
        is_text = model.datatypes.get("text_input") == model.answered.get("text_output") == "BYTES"
        return is_text and {"text_input", "text_output"} <= model.single

    async def ask(self, engine: TokenGenerator) -> EngineError | None:
        """Ask for one token, a limit that such a model need not heed: its first response is enough; see ``Dialect``."""
        return await ask(engine, first=True)

    def check_model(self, model: ModelView) -> None:
        """Reject a model whose inputs or outputs would fail every request; see ``TextDialect``."""
        wide = sorted({name for tensor in PLAIN_TEXT.inputs for name in tensor.names} & model.inputs - model.single)
        if wide:
            raise DiscoveryError(
                f"model {model.name!r} declares more than one element for {', '.join(wide)}; set dims: [ 1 ]"
            )
        for tensor in PLAIN_TEXT.outputs:
            declared = model.answered.get(tensor.name, tensor.wire_datatype)
            if declared not in (tensor.wire_datatype, f"U{tensor.wire_datatype}"):
                raise DiscoveryError(
                    f"the output {tensor.name} of model {model.name!r} is declared as {declared}, but must be "
                    f"{tensor.wire_datatype}; change its type or its name"
                )

    def make(
        self, connection: Connection, models: Models, reason: str, options: EngineOptions = NO_OPTIONS
    ) -> PlainEngine:
        """Make the engine; see ``Dialect``."""
        entry = models.entry
        features = self.features(
            models,
            reason,
            options,
            capabilities=_capabilities(entry),
            adds_special_tokens=hints.adds_special_tokens(entry),
            streams="pieces" if entry.decoupled else "whole",
            whole=not entry.decoupled,
            estimates=estimates(counts="num_output_tokens" in entry.outputs, finishes="finish_reason" in entry.outputs),
        )
        return PlainEngine(connection, entry, features)

    def lost(self, models: Models, options: EngineOptions) -> tuple[str, ...]:
        """List what answers lose; no configuration changes the model's code."""
        del options
        return tuple(_losses(models.entry))


def _capabilities(model: ModelView) -> dict[str, Capability]:
    encoder = RequestEncoder(model, PLAIN_TEXT)

    def by(tensor: str) -> Capability:
        return encoder.capability(tensor, f"By the model's input {tensor}, whose meaning the model defines.")

    ends = "which then cancels the request" if model.decoupled else "which cuts an answer that is not streamed"
    stream = Capability("native", "By decoupled responses, each with the new text.")
    missing = f"The Triton model {model.name!r} has no input for it."
    taken = {name: tensor for name in INPUTS if (tensor := encoder.tensor(name)) in _NAMES}
    return text_capabilities(
        missing,
        {
            "guides": f"{missing[:-1]}; describe the format in a message.",
            **dict.fromkeys(("token ids", "log-probs"), _TEXT_ONLY),
            "suffix": missing,
        },
        {
            **{name: by(tensor) for name, tensor in taken.items()},
            "length": by("max_tokens"),
            "n": Capability("emulated", "As parallel requests."),
            "stream": stream if model.decoupled else ONE_EVENT,
            "stop": Capability("emulated", f"Matched on the text in the gateway, {ends}."),
        },
    )


class PlainEngine(TextEngine):
    """An Engine that calls a plain text model with text and its declared parameters.

    Args:
        connection: connection to Triton.
        model: the called model.
        features: its features by discovery.
    """

    def __init__(self, connection: Connection, model: ModelView, features: EngineFeatures) -> None:
        super().__init__(connection, model, PLAIN_TEXT, features)
        self._returned = tuple(name for name in _RETURNED if name in model.outputs)

    def _reader(self, request: GenerationRequest) -> PlainReader:
        return PlainReader(request.max_tokens, decoupled=self._encoder.model.decoupled)

    def encode(self, request: GenerationRequest) -> service_pb2.ModelInferRequest:
        """Convert a request to tensors; see ``TextEngine.encode``."""
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
        for name, each in INPUTS.items():
            if each.neutral is not None and name not in _ALWAYS and (value := getattr(params, name)) != each.neutral:
                encoder.send(wire, name, value)
        if params.seed is not None:
            encoder.put(wire, "seed", request.seed)
        return wire


class PlainReader(ResponseReader):
    """Reads the responses of one request.

    Args:
        limit: requested tokens: counts with a larger sum are not counts of the answer's new tokens.
        decoupled: whether a request may have several responses, each with new text.
    """

    def __init__(self, limit: int, *, decoupled: bool) -> None:
        super().__init__(_RETURNED, finishes=False)
        self._left = limit
        self._decoupled = decoupled
        self._decoder = codecs.getincrementaldecoder("utf-8")()  # a model may cut its text within a character

    def _take(self, chunk: EngineChunk, outputs: dict[str, bytes], raw: bytes | None) -> None:
        if chunk.finish_reason == "length":  # the model may have a limit of its own
            chunk.finish_reason = "cut"
        if chunk.final and not self._ended:
            chunk.finish_reason = "unreported"
        if raw is not None and self._answered and not self._decoupled:
            raise MalformedOutputError("a second text from a model that should return one response")
        try:
            chunk.text = self._decoder.decode(raw or b"")
        except UnicodeDecodeError:
            raise MalformedOutputError("a text that is not UTF-8") from None
        if chunk.final and self._decoder.getstate()[0]:  # a limit may cut a character; so it is shown of tokens, too
            chunk.text += "\N{REPLACEMENT CHARACTER}"
        self._count(chunk, outputs, raw)

    def _count(self, chunk: EngineChunk, outputs: dict[str, bytes], raw: bytes | None) -> None:
        chunk.prompt_tokens = self._outputs.number(outputs, "num_input_tokens")
        counted = self._outputs.number(outputs, "num_output_tokens")
        if raw is None:
            chunk.output_tokens = 0
        elif counted is not None and bool(raw) <= counted <= self._left:
            self._left -= counted
            chunk.output_tokens = counted


def _losses(model: ModelView) -> Iterator[str]:
    name = model.name
    if not model.decoupled:
        yield f"a streamed answer is one event at the end: {name!r} is not decoupled"
    if "max_tokens" not in model.inputs:
        yield (
            f"{name!r} does not support max_tokens: requests with a limit are rejected, and the model decides "
            "where its answers end"
        )
    if "num_output_tokens" not in model.outputs:
        yield (
            f"{name!r} does not report token counts: usage.completion_tokens is counted by tokenizing the text again"
        )
    if "finish_reason" not in model.outputs:
        yield f"{name!r} does not report finish reasons: finish_reason is estimated"
    if "num_input_tokens" not in model.outputs:
        yield (
            f"{name!r} does not report prompt token counts: usage.prompt_tokens is counted by the gateway's tokenizer"
        )
    yield "log-probs are rejected because text does not show its tokens"
    yield "it is unknown whether the model stops cancelled requests"
    if hints.parameter(model, "add_special_tokens") is None:
        yield (
            f"the gateway assumes that {name!r} adds BOS to prompts; if not, set its parameter add_special_tokens "
            "to false"
        )
