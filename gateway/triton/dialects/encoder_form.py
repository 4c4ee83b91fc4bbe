"""The form of an encoder's requests and responses, found in its configuration and settings (wire contract 12)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

import numpy as np

from gateway.settings import Task
from gateway.settings.encoder_settings import EncoderSettings, EncoderTensor, TokenTensor
from gateway.triton.dialects.dialect import DiscoveryError
from gateway.triton.model_view import ModelView

_FLOATS: Final = {"FP32": "<f4", "FP16": "<f2", "FP64": "<f8"}
OUTPUTS: Final = {**_FLOATS, "BF16": "<u2"}
"""NumPy's types of vectors and scores; of BF16, which NumPy lacks, its bits."""
_INTEGERS: Final = {
    f"{sign}INT{8 * size}": f"<{sign or 'i'}{size}".lower() for sign in ("", "U") for size in (1, 2, 4, 8)
}
NUMPY_TYPES: Final = {**_FLOATS, **_INTEGERS, "BOOL": "?"}
_IDS: Final = ("INT32", "INT64", "UINT32", "UINT64")
_COUNTS: Final = ("token_count", "token_counts", "num_input_tokens", "prompt_tokens")
_WIDTHS: Final = ("dim", "dims", "dimension")
_HIDDEN_BYTES: Final = 32 * 2**20  # of the vectors of all tokens, in one response
_DEFAULT_WIDTH: Final = 1024  # of such vectors, where the model does not say
ASKS_COUNT: Final = "return_num_input_tokens"  # of vLLM
_TOKENS: Final[tuple[TokenTensor, ...]] = get_args(TokenTensor)
_NAMED: Final[tuple[EncoderTensor, ...]] = (*_TOKENS, "embedding_request", "query")
_NAMES: Final[Mapping[str, EncoderTensor]] = {
    **dict(zip(_NAMED, _NAMED, strict=True)),
    **dict.fromkeys(("passage", "passages", "document", "documents"), "document"),
}

InputKind = Literal["text", "pair", "query", "ids", "json"]
"""Forms of a request: a text or a pair of texts for each item; one query and its documents; token ids; vLLM's JSON."""
_KINDS: Final[Mapping[InputKind, Sequence[EncoderTensor]]] = {
    "json": ["embedding_request"],
    "ids": ["input_ids"],
    "query": ["query", "document"],
    "pair": ["pair"],
    "text": ["text"],
}


@dataclass(frozen=True, slots=True)
class EncoderForm:
    """The form of an encoder's requests and responses.

    Attributes:
        input_kind: the form of a request.
        tensors: names of its inputs, by their content.
        output: name of the output with vectors, scores or, of vLLM, JSON.
        order: name of the output with the places of sorted scores; None where scores come in the order of documents.
        count: name of the output with the tokens of each item; None where the model does not count.
        width: name of the output with the length of concatenated vectors; None without one.
        hidden: whether the output has a vector for each token.
        most_items: most items of one request.
        rows: items that each request has, the last ones as padding; None for any number.
        most_tokens: most tokens of a request of several items; fewer where the model returns a vector of each.
        length: tokens of each item, where the model declares their number.
        dimensions: numbers of one vector, where the model declares them.
    """

    input_kind: InputKind
    tensors: Mapping[EncoderTensor, str]
    output: str
    order: str | None
    count: str | None
    width: str | None
    hidden: bool
    most_items: int
    rows: int | None
    most_tokens: int
    length: int | None
    dimensions: int | None


def read_form(model: ModelView, settings: EncoderSettings, task: Task | None = None) -> EncoderForm:
    """Find the form of an encoder in its configuration and settings; ``task``: of the model, where it is known.

    Raises:
        DiscoveryError: the configuration does not tell; the message names the setting that does.
    """
    input_kind, tensors = _inputs(model, settings, task)
    if settings.token_ids == "own" and input_kind != "ids":  # noqa: S105 - no password
        what = f"model {model.name!r} takes texts, in its input {_listed(tensors.values())}, not ids"
        raise DiscoveryError(f"encoder.token_ids: {what}")
    _check_tensors(model, tensors)
    _check_filled(model, tensors, settings)
    output = _output(model, settings, input_kind)
    hidden = _has_token_vectors(model, tensors, output)
    counts = input_kind != "json" or ASKS_COUNT in model.inputs  # vLLM counts only when it is asked
    if settings.count:
        _check_output(model, "encoder.count", settings.count, _INTEGERS)
    count = settings.count or (_integers(model, _COUNTS) if counts else None)
    order = "index" if input_kind == "query" and "index" in model.outputs else None
    one_by_one = input_kind == "json" or not model.batched or (hidden and input_kind != "ids")
    width = _integers(model, _WIDTHS)
    rows = _fixed_rows(model, input_kind, tensors[_KINDS[input_kind][-1]], order)
    dimensions = None if input_kind == "json" or width else _declared(model, output)
    if dimensions and rows and len(model.dims[output]) == 1:  # one vector has the numbers of all rows
        dimensions //= rows
    number = np.dtype(OUTPUTS.get(model.answered.get(output, ""), "<f8")).itemsize
    bound = _HIDDEN_BYTES // number // (dimensions or _DEFAULT_WIDTH) if hidden else settings.batch_tokens
    most_items = settings.batch or rows or (1 if one_by_one else model.batch_size)
    form = EncoderForm(
        input_kind, tensors, output, order, count, width, hidden,
        most_items=1 if input_kind == "json" else min(most_items, rows or 4096),  # vLLM's request has one text
        rows=rows,
        most_tokens=max(1, min(settings.batch_tokens, bound)),
        length=_declared(model, tensors.get("input_ids", "")),
        dimensions=dimensions,
    )  # fmt: skip
    _check_dimensions(model, form)
    return form


def _input_kind(tensors: Collection[EncoderTensor]) -> InputKind | None:
    return next((kind for kind, needed in _KINDS.items() if {*needed} <= {*tensors}), None)


def _fixed_rows(model: ModelView, input_kind: InputKind, name: str, order: str | None) -> int | None:
    """The items of each request, where the input that holds them declares their number instead of batches."""
    dims, least = model.dims.get(name, ()), 1 if input_kind in ("text", "query") else 2
    if model.batched or len(dims) < least or dims[0] < 2:
        return None
    if order is not None:
        raise DiscoveryError(f"input {name} of model {model.name!r} has {dims[0]} rows, which {order} would sort")
    return dims[0]


def _declared(model: ModelView, tensor: str) -> int | None:
    """The last dimension of a tensor, where the model declares it."""
    dims = model.dims.get(tensor) or (-1,)
    return dims[-1] if dims[-1] > 0 else None


def _integers(model: ModelView, names: Sequence[str]) -> str | None:
    """The first output of integers with one of these names, whatever its case."""
    found = (each for each in sorted(model.outputs) if model.answered.get(each) in _INTEGERS)
    return next((each for each in found if each.lower() in names), None)


def _check_tensors(model: ModelView, tensors: Mapping[EncoderTensor, str]) -> None:
    """Reject a model whose inputs have other types, or more dimensions, than what is sent in them."""
    for content, name in tensors.items():
        what = f"input {name} of model {model.name!r} has"
        datatype, dims = model.datatypes.get(name), list(model.dims.get(name, ()))
        sent = NUMPY_TYPES if content == "attention_mask" else _IDS if content in _TOKENS else ("BYTES",)
        if datatype is not None and datatype not in sent:
            raise DiscoveryError(f"{what} the type {datatype}, which the gateway does not send as {content}")
        if len(dims) + model.batched > 2:
            raise DiscoveryError(f"{what} the dimensions {dims}, one more than the gateway sends")


def _check_output(model: ModelView, setting: str, name: str, types: Collection[str]) -> None:
    """Reject an output that the model lacks, or that has another type."""
    if model.answered.get(name) not in types:
        outputs = _listed(f"{each} {model.answered.get(each)}" for each in model.outputs)
        wanted = f"{name!r} of type {' or '.join(types)}"
        raise DiscoveryError(f"{setting}: model {model.name!r} has no output {wanted}; its outputs are {outputs}")


def _check_dimensions(model: ModelView, form: EncoderForm) -> None:
    """Reject outputs whose dimensions are not those of a vector, or a count, for each item."""
    dims, rows = model.dims.get(form.output, ()), form.rows or 1
    outer = [*([-1] if model.batched else []), *dims][: -2 if form.hidden else -1]
    even = outer or form.hidden or max(0, 0, *dims) % rows == 0  # else one vector has the numbers of all items
    vectors = {*outer[:1]} <= {-1, rows} and {*outer[1:]} <= {-1, 1} and even
    counts = {*model.dims.get(form.count or "", ())} <= {-1, 1, rows}
    for name, fits in ((form.output, vectors or form.input_kind == "json"), (form.count or "", counts)):
        if not fits:
            what = f"output {name} of model {model.name!r} has the dimensions {list(model.dims[name])}"
            raise DiscoveryError(f"{what}, not those of a vector or a count for each input")


def _check_filled(model: ModelView, tensors: Mapping[EncoderTensor, str], settings: EncoderSettings) -> None:
    """Reject a model that requires inputs which a request may lack."""
    default = settings.input_types.get(settings.default_input_type or "")
    if settings.default_input_type and default is None and "input_type" not in settings.request_fields:
        raise DiscoveryError(f"encoder.default_input_type: {settings.default_input_type} is not in encoder.input_types")
    each_type = [set(each.inputs) for each in settings.input_types.values()] if default else []
    always = {*settings.inputs, *(set.intersection(*each_type) if each_type else ())}
    if unfilled := model.required - set(tensors.values()) - always:
        what = f"model {model.name!r} requires inputs that the gateway does not send: {_listed(unfilled)}"
        how = "in encoder.tensors by their content, or give a value for all requests in encoder.inputs"
        raise DiscoveryError(f"{what}; name them {how}")


def _has_token_vectors(model: ModelView, tensors: Mapping[EncoderTensor, str], output: str) -> bool:
    """Whether an output has a vector for each token, by its declared dimensions."""
    dims = model.dims.get(output, ())
    of_one = len(model.dims.get(tensors.get("input_ids", ""), ())) == 1  # an input without a dimension for items
    if not model.batched and not of_one:
        dims = dims[1:]
    return len(dims) == 2 and dims[0] != 1


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def _constants(settings: EncoderSettings) -> set[str]:
    return {*settings.inputs, *(name for each in settings.input_types.values() for name in each.inputs)}


def _inputs(
    model: ModelView, settings: EncoderSettings, task: Task | None
) -> tuple[InputKind, dict[EncoderTensor, str]]:
    """The form of a request, and the inputs of a model by what they hold."""
    if unknown := {*settings.tensors.values(), *_constants(settings)} - model.inputs:
        what = f"model {model.name!r} has no input {_listed(unknown)}; its inputs are {_listed(model.inputs)}"
        raise DiscoveryError(f"encoder: {what}")
    found: dict[EncoderTensor, str] = dict(settings.tensors)
    free = model.inputs - set(found.values()) - _constants(settings)
    for name, holds in _NAMES.items():
        if name in free and holds not in found:
            found[holds] = name
    if _input_kind(found) is None:
        texts = [name for name in sorted(free) if model.datatypes.get(name) == "BYTES"]
        texts = [name for name in texts if name in model.required] or texts
        dims = model.dims.get(texts[0], ()) if len(texts) == 1 else ()
        two = dims == (2,) and not model.batched
        if two and task not in ("rerank", "embed"):
            what = f"input {texts[0]} of model {model.name!r} takes two texts or one pair"
            raise DiscoveryError(f"{what}; name it in encoder.tensors, as text or as pair")
        if len(texts) == 1:
            found["pair" if dims[-1:] == (2,) and not (two and task == "embed") else "text"] = texts[0]
    if (input_kind := _input_kind(found)) is None:
        what = f"it is unknown which input of model {model.name!r} takes the texts, of {_listed(model.inputs)}"
        raise DiscoveryError(f"{what}; name it in encoder.tensors")
    return input_kind, found


def _output(model: ModelView, settings: EncoderSettings, input_kind: InputKind) -> str:
    """The output with the vectors or scores: pooled before unpooled ones."""
    if named := settings.output or ("text_output" if input_kind == "json" else None):
        _check_output(model, "encoder.output", named, ("BYTES",) if input_kind == "json" else (*OUTPUTS, *_INTEGERS))
        return named
    floats = [name for name in model.outputs if model.answered.get(name) in OUTPUTS]
    least = min((len(model.dims[name]) for name in floats), default=0)
    pooled = [name for name in floats if len(model.dims[name]) == least]
    if len(pooled) == 1:
        return pooled[0]
    what = f"it is unknown which output of model {model.name!r} has the vectors or scores, of {_listed(model.outputs)}"
    raise DiscoveryError(f"{what}; name it in encoder.output")
