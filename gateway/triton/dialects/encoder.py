"""The dialect of encoders: texts, pairs or token ids in; vectors or scores out (wire contract 12)."""

from __future__ import annotations

import asyncio
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import ClassVar, Final

from tritonclient.grpc import service_pb2

from gateway.generation.encoder import EncodedItems, Encoder, EncoderParams, EncoderRequest
from gateway.generation.engine import Capability, EngineError, EngineFeatures, ErrorKind, MalformedOutputError
from gateway.settings import EnginePath
from gateway.settings.encoder_settings import EncoderSettings
from gateway.text.contract import ModelSpec
from gateway.text.tokens.encoder_tokenizer import EncoderInput
from gateway.triton import hints
from gateway.triton.abilities import NO_OPTIONS, EngineOptions
from gateway.triton.connection import Connection
from gateway.triton.dialects.dialect import Dialect, DiscoveryError
from gateway.triton.dialects.encoder_form import OUTPUTS, EncoderForm, read_form
from gateway.triton.dialects.encoder_request import write_request
from gateway.triton.dialects.encoder_response import read_response
from gateway.triton.model_view import ModelView
from gateway.triton.pipeline import Models
from gateway.triton.response_stream import ResponseStream

_POOLING: Final = ThreadPoolExecutor(2, thread_name_prefix="pooling")  # of hidden states, off the event loop
_PROBE = EncoderInput(text="a", pair="a", ids=(0,), type_ids=(0,))


class EncoderDialect(Dialect[Encoder]):
    """The dialect of models with another task than to generate."""

    path = "encoder"
    kind = "encoder"
    name = "an encoder"
    served = "an encoder of texts"
    spec = ModelSpec("encoder", (), ())
    always: ClassVar[frozenset[str]] = frozenset()

    def recognizes(self, model: ModelView) -> bool:
        """Tell whether a model takes texts or token ids and returns numbers; see ``Dialect``."""
        takes = "input_ids" in model.inputs or "BYTES" in model.datatypes.values()
        return takes and any(datatype in OUTPUTS for datatype in model.answered.values())

    def check(self, models: Models, path: EnginePath) -> None:
        """Reject a setting ``path`` of generating models; see ``Dialect``."""
        del models
        if path not in ("auto", self.path):
            raise DiscoveryError(f"path: {path} is configured, but only models whose task is to generate have it")

    def make(
        self, connection: Connection, models: Models, reason: str, options: EngineOptions = NO_OPTIONS
    ) -> TritonEncoder:
        """Make the engine; see ``Dialect``."""
        model, settings = models.entry, _with_hints(models.entry, options.encoder)
        form = read_form(model, settings, options.task)
        if options.task == "rerank" and form.input_kind in ("text", "json"):
            raise DiscoveryError(f"model {model.name!r} takes one text, but to rerank needs a query with a document")
        bounds = [each for each in (hints.number(model, "max_seq_len"), form.length) if each is not None]
        features = EngineFeatures(
            path=self.path,
            reason=reason,
            model=model.name,
            token_ids=False,
            prompt_ids=form.input_kind == "ids",
            logprobs=False,
            max_seq_len=min(bounds, default=None),
            tokenizer_dir=hints.parameter(model, "tokenizer_dir"),
            capabilities=_capabilities(form, settings),
            streams="whole",
            whole=True,
            estimates=frozenset() if form.count else frozenset({"prompt_tokens"}),
            task=options.task,
            most_items=min(form.most_items, max(1, form.most_tokens // (form.length or 1))),
            one_query=form.input_kind == "query" and not model.batched,
            most_tokens=form.most_tokens,
            pads=form.input_kind != "ids" or "attention_mask" in form.tensors,
            width=form.dimensions,
        )
        encoder = TritonEncoder(connection, model, form, settings, features)
        try:
            encoder.wire(EncoderRequest("probe", [_PROBE], EncoderParams()))
        except (ValueError, TypeError, OverflowError) as error:
            raise DiscoveryError(f"encoder.inputs or encoder.parameters of model {model.name!r}: {error}") from None
        return encoder

    async def ask(self, engine: Encoder) -> EngineError | None:
        """Encode one short text; see ``Dialect``."""
        try:
            await engine.encode(EncoderRequest(f"probe-{uuid.uuid4()}", [_PROBE], EncoderParams()))
        except EngineError as error:
            if error.kind is ErrorKind.UNAVAILABLE:
                raise
            return error
        return None

    def lost(self, models: Models, options: EngineOptions) -> tuple[str, ...]:
        """Return nothing: vectors and scores come whole."""
        del models, options
        return ()


def _with_hints(model: ModelView, settings: EncoderSettings) -> EncoderSettings:
    """The settings, with the request fields that the model's configuration names where they name none."""
    named = hints.parameter(model, "request_fields")
    if named is None or settings.request_fields:
        return settings
    return EncoderSettings.model_validate({**settings.model_dump(exclude_unset=True), "request_fields": named})


def _capabilities(form: EncoderForm, settings: EncoderSettings) -> dict[str, Capability]:
    native = Capability("native", "By a request parameter of the Triton model.")
    missing = "set encoder.{} in the model's settings if it has one."
    found = {
        "input_type": Capability("impossible", "This model knows no input types; " + missing.format("input_types")),
        "dimensions": Capability("impossible", "This model's vectors have one length; " + missing.format("dimensions")),
        "truncate": Capability("emulated", "The gateway cuts texts that are too long, by its tokenizer."),
    }
    if settings.input_types:
        names = ", ".join(sorted(settings.input_types))
        found["input_type"] = Capability("emulated", f"The gateway changes each input by its settings for {names}.")
    if settings.dimensions:
        found["dimensions"] = Capability("emulated", "The gateway cuts vectors and scales them to length 1.")
    if form.input_kind == "json":
        found["dimensions"] = Capability("native", "By pooling_params.")
    return found | dict.fromkeys(settings.request_fields, native)


@dataclass(frozen=True, eq=False)
class TritonEncoder:
    """An Encoder that calls a Triton model.

    Attributes:
        connection: connection to Triton.
        model: the called model.
        form: form of requests and responses.
        settings: settings with additions to each request.
        features: its features by discovery.
    """

    connection: Connection
    model: ModelView
    form: EncoderForm
    settings: EncoderSettings
    features: EngineFeatures

    async def encode(self, request: EncoderRequest) -> EncodedItems:
        """Encode inputs; see ``gateway.generation.encoder.Encoder``."""
        call = self.connection.transport.infer(
            self.wire(request), timeout=self.connection.timeout, traceparent=request.traceparent
        )
        stream = ResponseStream(call)
        answered: service_pb2.ModelInferResponse | None = None
        try:
            while not stream.final:
                response = await stream.read()
                if response.raw_output_contents:
                    answered = response
        except EngineError as error:
            self.connection.report(error)
            raise
        finally:
            stream.close()
        if answered is None:
            raise MalformedOutputError("no outputs")
        if not self.form.hidden:
            return self._read(answered, request)
        return await asyncio.get_running_loop().run_in_executor(_POOLING, self._read, answered, request)

    def wire(self, request: EncoderRequest) -> service_pb2.ModelInferRequest:
        """Convert a request to tensors and request parameters."""
        return write_request(request, self.model, self.form, self.settings)

    def _read(self, response: service_pb2.ModelInferResponse, request: EncoderRequest) -> EncodedItems:
        return read_response(response, request, self.form, self.settings, self.features.task)
