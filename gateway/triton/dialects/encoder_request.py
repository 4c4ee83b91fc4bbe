"""The tensors and request parameters of a request to an encoder."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from tritonclient.grpc import service_pb2

from gateway.generation.encoder import EncoderRequest
from gateway.generation.engine import EngineError, ErrorKind
from gateway.settings.encoder_settings import Constant, EncoderSettings, EncoderTensor, InputTypeSettings
from gateway.text.tokens.encoder_tokenizer import EncoderInput
from gateway.triton.dialects.encoder_form import ASKS_COUNT, NUMPY_TYPES, EncoderForm
from gateway.triton.model_view import ModelView

_PARAMETER_FIELDS: Final = {bool: "bool_param", int: "int64_param", float: "double_param", str: "string_param"}


def write_request(
    request: EncoderRequest, model: ModelView, form: EncoderForm, settings: EncoderSettings
) -> service_pb2.ModelInferRequest:
    """Convert a request to tensors and request parameters."""
    params = request.params
    wire = service_pb2.ModelInferRequest(model_name=model.name, id=request.id)
    wire.parameters["triton_enable_empty_final_response"].bool_param = True
    for name in filter(None, (form.output, form.order, form.count, form.width)):
        wire.outputs.add(name=name)
    items = [*request.items, *[request.items[0]] * ((form.rows or 0) - len(request.items))]
    for content, values in _inputs(items, request, model, form).items():
        if content in form.tensors:
            _put(wire, model, form.tensors[content], values)
    used = params.input_type or settings.default_input_type
    own = settings.input_types.get(used or "", InputTypeSettings())
    counted = {ASKS_COUNT: True} if form.input_kind == "json" and form.count and ASKS_COUNT in model.inputs else {}
    for name, value in {**counted, **settings.inputs, **own.inputs}.items():
        first, *others = *([-1] if model.batched else []), *model.dims.get(name, (1,))
        shape = [len(items) if first < 0 else first, *(max(dim, 1) for dim in others)]
        _put(wire, model, name, np.full(shape, value, NUMPY_TYPES.get(model.datatypes.get(name, ""), object)))
    fields = {"input_type": used, "truncate": params.truncate.upper(), "dimensions": params.dimensions}
    given: dict[str, Constant | None] = {**settings.parameters, **own.parameters}
    for name, asked in (given | {name: fields[name] for name in settings.request_fields}).items():
        if asked is not None:
            setattr(wire.parameters[name], _PARAMETER_FIELDS[type(asked)], asked)
    return wire


def _inputs(
    items: Sequence[EncoderInput], request: EncoderRequest, model: ModelView, form: EncoderForm
) -> dict[EncoderTensor, NDArray[Any]]:
    """The inputs by their content, each with a row for each item, or for each query of a model without batches."""
    texts = np.array([(item.text, item.pair or "") for item in items], object)
    if form.input_kind == "ids":
        return _token_ids(items, request.pad_id, form)
    if form.input_kind == "json":
        size = request.params.dimensions
        asked = {"input": items[0].text, "pooling_params": {} if size is None else {"dimensions": [size]}}
        return {"embedding_request": np.array([[json.dumps(asked)]], object)}
    queries = texts[:, :1]
    if form.input_kind == "query" and not model.batched:
        if len({item.text for item in items}) > 1:
            raise EngineError(ErrorKind.INVALID_REQUEST, "This model takes the documents of one query in a request.")
        queries = queries[:1]
    return {"text": queries, "pair": texts, "query": queries, "document": texts[:, 1:]}


def _token_ids(items: Sequence[EncoderInput], pad_id: int, form: EncoderForm) -> dict[EncoderTensor, NDArray[Any]]:
    """Token ids, padded at the end to the longest or the model's fixed length, which the attention mask hides."""
    lengths = np.array([len(item.ids) for item in items])
    mask = np.arange(form.length or lengths.max()) < lengths[:, None]

    def padded(rows: Iterable[Sequence[int]], padding: int) -> NDArray[np.int64]:
        found = np.full(mask.shape, padding, np.int64)
        found[mask] = np.fromiter(chain.from_iterable(rows), np.int64)
        return found

    found: dict[EncoderTensor, NDArray[Any]] = {
        "input_ids": padded((item.ids for item in items), pad_id),
        "attention_mask": mask,
        "position_ids": np.where(mask, np.arange(mask.shape[1]) + items[0].position, max(items[0].position - 1, 0)),
    }
    if "token_type_ids" in form.tensors:
        found["token_type_ids"] = padded((item.type_ids for item in items), 0)
    return found


def _put(wire: service_pb2.ModelInferRequest, model: ModelView, name: str, values: NDArray[Any]) -> None:
    """Add an input with the model's type; as a vector if the model has no dimension for items."""
    datatype = model.datatypes.get(name, "BYTES" if values.dtype == object else "INT64")
    if datatype == "BYTES":
        encoded = [str(value).encode() for value in values.flat]
        raw = b"".join(struct.pack("<I", len(text)) + text for text in encoded)
    else:
        raw = values.astype(NUMPY_TYPES[datatype]).tobytes()
    vector = not model.batched and len(model.dims.get(name, ())) < 2
    wire.inputs.add(name=name, datatype=datatype, shape=[values.size] if vector else values.shape)
    wire.raw_input_contents.append(raw)
