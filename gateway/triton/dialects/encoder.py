"""The dialect of encoders: texts, pairs or token ids in; vectors or scores out (wire contract 12)."""

from __future__ import annotations

import asyncio
import json
import math
import struct
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar, Final, Literal

import numpy as np
from numpy.typing import NDArray
from tritonclient.grpc import service_pb2

from gateway.generation.encoder import EncodedItems, Encoder, EncoderParams, EncoderRequest
from gateway.generation.engine import Capability, EngineError, EngineFeatures, ErrorKind, MalformedOutputError
from gateway.settings import EnginePath
from gateway.settings.encoder_settings import EncoderSettings, EncoderTensor
from gateway.text.contract import ModelSpec
from gateway.text.tokens.encoder_tokenizer import EncoderInput
from gateway.triton import hints
from gateway.triton.abilities import NO_OPTIONS, EngineOptions
from gateway.triton.connection import Connection
from gateway.triton.dialects.dialect import Dialect, DiscoveryError
from gateway.triton.model_view import ModelView
from gateway.triton.pipeline import Models
from gateway.triton.response_stream import ResponseStream

_INTEGERS: Final = {
    f"{sign}INT{8 * size}": f"<{kind}{size}" for sign, kind in (("", "i"), ("U", "u")) for size in (1, 2, 4, 8)
}
_FLOATS: Final = {"FP32": "<f4", "FP16": "<f2", "FP64": "<f8"}
_OUTPUTS: Final = {**_FLOATS, "BF16": "<u2"}  # which NumPy lacks
_COUNTS: Final = ("token_count", "token_counts", "num_input_tokens", "prompt_tokens")
_WIDTHS: Final = ("dim", "dims", "dimension")
_HIDDEN_BYTES: Final = 32 * 2**20  # of the vectors of all tokens, in one response
_DEFAULT_WIDTH: Final = 1024  # of such vectors, where the model does not say
_SUM_ERROR: Final = 5e-3  # of probabilities that were rounded to BF16
_ASKS_COUNT: Final = "return_num_input_tokens"  # of vLLM
_DOCUMENTS: Final = ("passage", "passages", "document", "documents")
_NAMES: Final[Mapping[str, EncoderTensor]] = {
    "input_ids": "input_ids",
    "attention_mask": "attention_mask",
    "token_type_ids": "token_type_ids",
    "embedding_request": "embedding_request",
    "query": "query",
    **dict.fromkeys(_DOCUMENTS, "document"),
}
_POOLING: Final = ThreadPoolExecutor(2, thread_name_prefix="pooling")  # of hidden states, off the event loop
_PROBE = EncoderInput(text="a", pair="a", ids=(0,), type_ids=(0,))

Takes = Literal["text", "pair", "query", "ids", "json"]
"""Forms of a request: a text or a pair of texts for each item; one query and its documents; token ids; vLLM's JSON."""


@dataclass(frozen=True, slots=True)
class EncoderForm:
    """The form of an encoder's requests and responses.

    Attributes:
        takes: the form of a request.
        tensors: names of its inputs, by their content.
        output: name of the output with vectors, scores or, of vLLM, JSON.
        order: name of the output with the places of sorted scores; None where scores come in the order of documents.
        count: name of the output with the tokens of each item; None where the model does not count.
        width: name of the output with the length of concatenated vectors; None without one.
        hidden: whether the output has a vector for each token.
        most_items: most items of one request.
    """

    takes: Takes
    tensors: Mapping[EncoderTensor, str]
    output: str
    order: str | None
    count: str | None
    width: str | None
    hidden: bool
    most_items: int


def read_form(model: ModelView, settings: EncoderSettings) -> EncoderForm:
    """Find the form of an encoder in its configuration and settings.

    Raises:
        DiscoveryError: the configuration does not tell; the message names the setting that does.
    """
    tensors = _tensors(model, settings)
    takes = _takes(model, tensors)
    if settings.token_ids == "own" and takes != "ids":  # noqa: S105 - no password
        of_texts = ", ".join(sorted(tensors.values()))
        raise DiscoveryError(f"encoder.token_ids: model {model.name!r} takes texts, in its input {of_texts}, not ids")
    _check_filled(model, tensors, settings)
    output = _output(model, settings, takes)
    hidden = _is_hidden(model, tensors, output)
    counts = takes != "json" or _ASKS_COUNT in model.inputs  # vLLM counts only when it is asked
    count = settings.count or (_integers(model, _COUNTS) if counts else None)
    order = "index" if takes == "query" and "index" in model.outputs else None
    one_by_one = takes == "json" or not model.batched or (hidden and takes != "ids")
    most = 1 if one_by_one else model.batch_size
    most = min(settings.batch or most, 4096)
    return EncoderForm(takes, tensors, output, order, count, _integers(model, _WIDTHS), hidden, most)


def _integers(model: ModelView, names: Sequence[str]) -> str | None:
    """The first output of integers with one of these names, whatever its case."""
    found = (each for each in sorted(model.outputs) if model.answered.get(each) in _INTEGERS)
    return next((each for each in found if each.lower() in names), None)


def _check_filled(model: ModelView, tensors: Mapping[EncoderTensor, str], settings: EncoderSettings) -> None:
    """Reject a model that requires inputs which a request may lack."""
    default = settings.input_types.get(settings.default_input_type or "")
    if settings.default_input_type and default is None and "input_type" not in settings.request_fields:
        raise DiscoveryError(f"encoder.default_input_type: {settings.default_input_type} is not in encoder.input_types")
    each_type = [set(each.inputs) for each in settings.input_types.values()] if default else []
    always = {*settings.inputs, *(set.intersection(*each_type) if each_type else ())}
    unfilled = sorted(model.required - set(tensors.values()) - always)
    if unfilled:
        raise DiscoveryError(
            f"model {model.name!r} requires inputs that the gateway does not send: {', '.join(unfilled)}; give their "
            "values in encoder.inputs"
        )


def _is_hidden(model: ModelView, tensors: Mapping[EncoderTensor, str], output: str) -> bool:
    """Whether an output has a vector for each token, by its declared dimensions."""
    dims = model.dims.get(output, ())
    of_one = len(model.dims.get(tensors.get("input_ids", ""), ())) == 1  # an input without a dimension for items
    if not model.batched and not of_one:
        dims = dims[1:]
    return len(dims) == 2 and dims[0] != 1


def _width(model: ModelView, form: EncoderForm) -> int | None:
    """The numbers of one vector, by the declared dimensions."""
    dims = model.dims.get(form.output, ())
    declared = dims[-1] if dims and form.takes != "json" and form.width is None else 0
    return declared if declared > 0 else None


def _fixed_length(model: ModelView, tensors: Mapping[EncoderTensor, str]) -> int | None:
    """The tokens of each input, where the model declares their number."""
    tokens = model.dims.get(tensors.get("input_ids", ""), ())[-1:]
    return next((each for each in tokens if each > 0), None)


def _most_tokens(model: ModelView, form: EncoderForm, settings: EncoderSettings) -> int:
    """The most tokens of a request of several inputs; fewer where the model returns a vector of each."""
    if not form.hidden:
        return settings.batch_tokens
    number = np.dtype(_OUTPUTS.get(model.answered.get(form.output, ""), "<f8")).itemsize
    return max(1, min(settings.batch_tokens, _HIDDEN_BYTES // number // (_width(model, form) or _DEFAULT_WIDTH)))


def _constants(settings: EncoderSettings) -> set[str]:
    return {*settings.inputs, *(name for each in settings.input_types.values() for name in each.inputs)}


def _tensors(model: ModelView, settings: EncoderSettings) -> dict[EncoderTensor, str]:
    """The inputs of a model by what they hold."""
    unknown = sorted({*settings.tensors.values(), *_constants(settings)} - model.inputs)
    if unknown:
        raise DiscoveryError(
            f"encoder: model {model.name!r} has no input {', '.join(unknown)}; its inputs are "
            f"{', '.join(sorted(model.inputs))}"
        )
    found: dict[EncoderTensor, str] = dict(settings.tensors)
    free = model.inputs - set(found.values()) - _constants(settings)
    for name, holds in _NAMES.items():
        if name in free and holds not in found:
            found[holds] = name
    if not found.keys() & {"input_ids", "embedding_request", "text", "pair"} and not found.keys() >= {
        "query",
        "document",
    }:
        texts = [name for name in sorted(free) if model.datatypes.get(name) == "BYTES"]
        texts = [name for name in texts if name in model.required] or texts
        if len(texts) == 1:
            found["pair" if model.dims.get(texts[0], ())[-1:] == (2,) else "text"] = texts[0]
    return found


def _takes(model: ModelView, tensors: Mapping[EncoderTensor, str]) -> Takes:
    if "embedding_request" in tensors:
        return "json"
    if "input_ids" in tensors:
        return "ids"
    if {"query", "document"} <= tensors.keys():
        return "query"
    if "pair" in tensors:
        return "pair"
    if "text" in tensors:
        return "text"
    raise DiscoveryError(
        f"it is unknown which input of model {model.name!r} takes the texts, of {', '.join(sorted(model.inputs))}; "
        "name it in encoder.tensors"
    )


def _output(model: ModelView, settings: EncoderSettings, takes: Takes) -> str:
    """The output with the vectors or scores: pooled before unpooled ones."""
    if settings.output is not None:
        if settings.output not in model.outputs:
            raise DiscoveryError(
                f"encoder.output: model {model.name!r} has no output {settings.output!r}; its outputs are "
                f"{', '.join(sorted(model.outputs))}"
            )
        return settings.output
    if takes == "json":
        return "text_output"
    floats = [name for name in model.outputs if model.answered.get(name) in _OUTPUTS]
    least = min((len(model.dims[name]) for name in floats), default=0)
    pooled = [name for name in floats if len(model.dims[name]) == least]
    if len(pooled) == 1:
        return pooled[0]
    raise DiscoveryError(
        f"it is unknown which output of model {model.name!r} has the vectors or scores, of "
        f"{', '.join(sorted(model.outputs))}; name it in encoder.output"
    )


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
        return takes and any(datatype in _OUTPUTS for datatype in model.answered.values())

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
        form = read_form(model, settings)
        if options.task == "rerank" and form.takes in ("text", "json"):
            raise DiscoveryError(f"model {model.name!r} takes one text, but to rerank needs a query with a document")
        length, most_tokens = _fixed_length(model, form.tensors), _most_tokens(model, form, settings)
        bounds = [each for each in (hints.number(model, "max_seq_len"), length) if each is not None]
        features = EngineFeatures(
            path=self.path,
            reason=reason,
            model=model.name,
            token_ids=False,
            prompt_ids=form.takes == "ids",
            logprobs=False,
            max_seq_len=min(bounds, default=None),
            tokenizer_dir=hints.parameter(model, "tokenizer_dir"),
            capabilities=_capabilities(form, settings),
            streams="whole",
            whole=True,
            estimates=frozenset() if form.count else frozenset({"prompt_tokens"}),
            task=options.task,
            most_items=min(form.most_items, max(1, most_tokens // (length or 1))),
            one_query=form.takes == "query" and not model.batched,
            most_tokens=most_tokens,
            pads=form.takes != "ids" or "attention_mask" in form.tensors,
            width=_width(model, form),
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
    if form.takes == "json":
        found["dimensions"] = Capability("native", "By pooling_params.")
    return found | dict.fromkeys(settings.request_fields, native)


class TritonEncoder:
    """An Encoder that calls a Triton model.

    Args:
        connection: connection to Triton.
        model: the called model.
        form: form of requests and responses.
        settings: settings with additions to each request.
        features: its features by discovery.

    Attributes:
        form: form of requests and responses.
    """

    def __init__(
        self,
        connection: Connection,
        model: ModelView,
        form: EncoderForm,
        settings: EncoderSettings,
        features: EngineFeatures,
    ) -> None:
        self._connection = connection
        self._model = model
        self.form = form
        self._settings = settings
        self._features = features

    @property
    def features(self) -> EngineFeatures:
        """The features of this encoder."""
        return self._features

    async def encode(self, request: EncoderRequest) -> EncodedItems:
        """Encode inputs; see ``gateway.generation.encoder.Encoder``."""
        call = self._connection.transport.infer(
            self.wire(request), timeout=self._connection.timeout, traceparent=request.traceparent
        )
        stream = ResponseStream(call)
        answered: service_pb2.ModelInferResponse | None = None
        try:
            while not stream.final:
                response = await stream.read()
                if response.raw_output_contents:
                    answered = response
        except EngineError as error:
            self._connection.report(error)
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
        form, model, params = self.form, self._model, request.params
        wire = service_pb2.ModelInferRequest(model_name=model.name, id=request.id)
        wire.parameters["triton_enable_empty_final_response"].bool_param = True
        for name in filter(None, (form.output, form.order, form.count, form.width)):
            wire.outputs.add(name=name)
        _FILL[form.takes](wire, model, form, request)
        used = params.input_type or self._settings.default_input_type
        own = self._settings.input_types.get(used or "")
        rows = len(request.items)
        for name, value in {**self._settings.inputs, **(own.inputs if own else {})}.items():
            _put_constant(wire, model, name, value, rows)
        for name, value in {**self._settings.parameters, **(own.parameters if own else {})}.items():
            _set_parameter(wire, name, value)
        fields = {"input_type": used, "truncate": params.truncate.upper(), "dimensions": params.dimensions}
        for name in self._settings.request_fields:
            if fields[name] is not None:
                _set_parameter(wire, name, fields[name])
        return wire

    def _read(self, response: service_pb2.ModelInferResponse, request: EncoderRequest) -> EncodedItems:
        form, settings, outputs = self.form, self._settings, dict(_outputs(response))
        rows = len(request.items)
        raw = outputs.get(form.output)
        if raw is None:
            raise MalformedOutputError(f"the output {form.output} is missing")
        values = _vectors_of_json(raw) if form.takes == "json" else raw
        if not isinstance(values, np.ndarray) or not values.size:
            raise MalformedOutputError(f"{form.output} is not {rows} rows of numbers")
        values = _rows(values, rows, form, outputs.get(form.width or ""))
        if form.hidden:
            values = _pooled(values, request.items, form, settings.pooling)
        if form.hidden if settings.normalize is None else settings.normalize:
            values = scaled(values)
        values = self._activated(values)
        counts = outputs.get(form.count or "")
        token_counts = _counts(counts, rows) if isinstance(counts, np.ndarray) else None
        if form.count and token_counts is None and not any(item.ids for item in request.items):
            raise MalformedOutputError(f"the output {form.count} is missing, and no tokenizer counts")
        if form.order is not None:
            values = _unsorted(values, outputs.get(form.order))
        return EncodedItems(values.astype(np.float32, copy=False), token_counts)

    def _activated(self, values: NDArray[Any]) -> NDArray[Any]:
        """Scores as probabilities, where the model gives logits."""
        how, task, name = self._settings.activation, self._features.task, self.form.output.lower()
        of_logits = "logit" in name
        if how == "auto":
            logits = of_logits if task == "rerank" else task == "classify" and "prob" not in name
            how = "none" if not logits else "sigmoid" if values.shape[1] == 1 else "softmax"
        if how == "none":
            return values
        wide: NDArray[np.float64] = values.astype(np.float64)
        found: NDArray[Any] = 0.5 * (1 + np.tanh(wide / 2))
        if how == "softmax":
            powers = np.exp(wide - wide.max(axis=1, keepdims=True))
            found = powers / powers.sum(axis=1, keepdims=True)
            if self._settings.activation == "auto" and not of_logits:
                found = np.where(_are_probabilities(wide), wide, found)
        return np.where(np.isfinite(wide), found, np.nan)  # an infinite score is a fault, not a certainty


def _are_probabilities(rows: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether the numbers of each row are probabilities of all classes; shape [rows, 1]."""
    sums = rows.sum(axis=1, keepdims=True)
    found: NDArray[np.bool_] = np.isclose(sums, 1, rtol=0, atol=_SUM_ERROR) & (rows >= 0).all(axis=1, keepdims=True)
    return found


def _put(wire: service_pb2.ModelInferRequest, name: str, datatype: str, shape: Sequence[int], raw: bytes) -> None:
    wire.inputs.add(name=name, datatype=datatype, shape=shape)
    wire.raw_input_contents.append(raw)


def _packed(texts: Sequence[str]) -> bytes:
    encoded = [text.encode() for text in texts]
    return b"".join(struct.pack("<I", len(text)) + text for text in encoded)


def _put_texts(
    wire: service_pb2.ModelInferRequest, model: ModelView, name: str, texts: Sequence[str], per_item: int = 1
) -> None:
    """Add texts, ``per_item`` of them for each item; with a batch dimension, or as a vector."""
    rows = len(texts) // per_item
    shape = [rows, per_item] if model.batched or len(model.dims.get(name, ())) > 1 else [len(texts)]
    _put(wire, name, "BYTES", shape, _packed(texts))


def _fill_texts(
    wire: service_pb2.ModelInferRequest, model: ModelView, form: EncoderForm, request: EncoderRequest
) -> None:
    _put_texts(wire, model, form.tensors["text"], [item.text for item in request.items])


def _fill_pairs(
    wire: service_pb2.ModelInferRequest, model: ModelView, form: EncoderForm, request: EncoderRequest
) -> None:
    texts = [text for item in request.items for text in (item.text, item.pair or "")]
    _put_texts(wire, model, form.tensors["pair"], texts, 2)


def _fill_query(
    wire: service_pb2.ModelInferRequest, model: ModelView, form: EncoderForm, request: EncoderRequest
) -> None:
    queries = [item.text for item in request.items]
    if not model.batched and len(set(queries)) > 1:
        raise EngineError(ErrorKind.INVALID_REQUEST, "This model takes the documents of one query in a request.")
    _put_texts(wire, model, form.tensors["query"], queries if model.batched else queries[:1])
    _put_texts(wire, model, form.tensors["document"], [item.pair or "" for item in request.items])


def _fill_ids(
    wire: service_pb2.ModelInferRequest, model: ModelView, form: EncoderForm, request: EncoderRequest
) -> None:
    """Add token ids, padded at the end to the longest or the model's fixed length, which the attention mask hides."""
    lengths = [len(item.ids) for item in request.items]
    rows, width = len(lengths), _fixed_length(model, form.tensors) or max(lengths)
    mask = np.arange(width) < np.array(lengths)[:, None]
    columns: dict[EncoderTensor, tuple[Callable[[EncoderInput], Sequence[int]] | None, int]] = {
        "input_ids": (lambda item: item.ids, request.pad_id),
        "attention_mask": (None, 0),
        "token_type_ids": (lambda item: item.type_ids, 0),
    }
    for holds, (of, padding) in columns.items():
        name = form.tensors.get(holds)
        if name is None:
            continue
        datatype = model.datatypes.get(name, "INT64")
        matrix = np.full((rows, width), padding, _INTEGERS.get(datatype, "<i8"))
        matrix[mask] = 1 if of is None else np.fromiter(chain.from_iterable(map(of, request.items)), matrix.dtype)
        shape = [rows, width] if model.batched or len(model.dims.get(name, ())) > 1 else [width]
        _put(wire, name, datatype, shape, matrix.tobytes())


def _fill_json(
    wire: service_pb2.ModelInferRequest, model: ModelView, form: EncoderForm, request: EncoderRequest
) -> None:
    params = {"dimensions": [request.params.dimensions]} if request.params.dimensions is not None else {}
    asked = {"input": request.items[0].text, "pooling_params": params}
    _put_texts(wire, model, form.tensors["embedding_request"], [json.dumps(asked)])
    if form.count and _ASKS_COUNT in model.inputs:
        _put_constant(wire, model, _ASKS_COUNT, True, 1)


_FILL: Final[Mapping[Takes, Callable[..., None]]] = {
    "text": _fill_texts,
    "pair": _fill_pairs,
    "query": _fill_query,
    "ids": _fill_ids,
    "json": _fill_json,
}


def _put_constant(wire: service_pb2.ModelInferRequest, model: ModelView, name: str, value: object, rows: int) -> None:
    datatype = model.datatypes.get(name, "BYTES")
    shape = [*([rows] if model.batched else []), *(max(dim, 1) for dim in model.dims.get(name, (1,)))]
    if datatype == "BYTES":
        raw = _packed([str(value)] * math.prod(shape))
    else:
        kind = "?" if datatype == "BOOL" else _INTEGERS.get(datatype) or _FLOATS.get(datatype, "<i8")
        raw = np.full(shape, value, kind).tobytes()
    _put(wire, name, datatype, shape, raw)


def _set_parameter(wire: service_pb2.ModelInferRequest, name: str, value: object) -> None:
    parameter = wire.parameters[name]
    if isinstance(value, bool):
        parameter.bool_param = value
    elif isinstance(value, int):
        parameter.int64_param = value
    elif isinstance(value, float):
        parameter.double_param = value
    else:
        parameter.string_param = str(value)


def _outputs(response: service_pb2.ModelInferResponse) -> Iterator[tuple[str, NDArray[Any] | bytes]]:
    """The outputs by name: numbers as arrays of their shape, strings as they came."""
    if len(response.outputs) != len(response.raw_output_contents):
        raise MalformedOutputError(f"{len(response.raw_output_contents)} contents of {len(response.outputs)} outputs")
    for output, raw in zip(response.outputs, response.raw_output_contents, strict=True):
        kind = _OUTPUTS.get(output.datatype) or _INTEGERS.get(output.datatype)
        if kind is None:
            yield output.name, raw
            continue
        name, shape = output.name, tuple(output.shape)
        if min(shape, default=0) < 0 or math.prod(shape) * np.dtype(kind).itemsize != len(raw):
            raise MalformedOutputError(f"{name} has {len(raw)} bytes and the shape {list(shape)}")
        values = np.frombuffer(raw, kind).reshape(shape)
        yield name, (values.astype("<u4") << 16).view("<f4") if output.datatype == "BF16" else values


def _vectors_of_json(raw: NDArray[Any] | bytes) -> NDArray[np.float32]:
    """Read the vector that vLLM returns as a list in a string."""
    try:
        if isinstance(raw, bytes):
            return np.array(json.loads(raw[4:]), np.float32)
    except (ValueError, TypeError):
        pass
    raise MalformedOutputError("the output is not a list of numbers")


def _rows(values: NDArray[Any], rows: int, form: EncoderForm, widths: NDArray[Any] | bytes | None) -> NDArray[Any]:
    """The output with one row for each item; vectors that come one behind the other are split by their length."""
    if values.ndim < 2:
        width = int(widths.reshape(-1)[0]) if isinstance(widths, np.ndarray) and widths.size else values.size // rows
        if width * rows != values.size:
            raise MalformedOutputError(f"{values.size} numbers of {rows} inputs, in vectors of {width}")
        return values.reshape(rows, width)
    if form.hidden and values.ndim == 2:  # of one text, without a dimension for items
        values = values[None]
    if not form.hidden and values.shape[1:-1] == (1,) * (values.ndim - 2):
        values = values.reshape(len(values), -1)
    if len(values) != rows or values.ndim != (3 if form.hidden else 2):
        raise MalformedOutputError(f"the output has the shape {list(values.shape)} of {rows} inputs")
    return values


def _pooled(values: NDArray[Any], items: Sequence[EncoderInput], form: EncoderForm, pooling: str) -> NDArray[Any]:
    """One vector for each item, of those of all its tokens."""
    rows, width = values.shape[:2]
    by_ids = form.takes == "ids" or rows > 1
    lengths = np.array([len(item.ids) if by_ids else width for item in items])
    if lengths.min() < 1 or lengths.max() > width:
        raise MalformedOutputError(f"{width} vectors of texts with {lengths.tolist()[:8]} tokens")
    if pooling == "cls":
        return values[:, 0]
    if pooling == "last":
        last: NDArray[Any] = values[np.arange(rows), lengths - 1]
        return last
    return np.stack([row[:length].mean(axis=0, dtype=np.float32) for row, length in zip(values, lengths, strict=True)])


def scaled(values: NDArray[Any]) -> NDArray[np.float32]:
    """Scale rows to length 1; a row of zeros stays as it is."""
    rows: NDArray[np.float32] = values.astype(np.float32, copy=False)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.divide(rows, np.where(lengths > 0, lengths, 1), dtype=np.float32)


def _counts(values: NDArray[Any], rows: int) -> list[int] | None:
    counts = [int(value) for value in values.reshape(-1)]
    if len(counts) != rows or min(counts) < 0:
        raise MalformedOutputError(f"{len(counts)} counts of {rows} inputs")
    return counts


def _unsorted(values: NDArray[Any], places: NDArray[Any] | bytes | None) -> NDArray[Any]:
    """Scores in the order of the documents, which come with their places."""
    order = places.reshape(-1) if isinstance(places, np.ndarray) else np.empty(0)
    if sorted(order.tolist()) != list(range(len(values))):
        raise MalformedOutputError("the places of the scores are not those of the documents")
    found = np.empty_like(values)
    found[order] = values
    return found
