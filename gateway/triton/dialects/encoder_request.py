"""The tensors and request parameters of a request to an encoder."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Final

import numpy as np
from tritonclient.grpc import service_pb2

from gateway.generation.encoder import EncoderRequest
from gateway.generation.engine import EngineError, ErrorKind
from gateway.settings.encoder_settings import EncoderSettings, EncoderTensor
from gateway.text.tokens.encoder_tokenizer import EncoderInput
from gateway.triton.dialects.encoder_form import ASKS_COUNT, FLOATS, INTEGERS, EncoderForm, Takes, fixed_length
from gateway.triton.model_view import ModelView


def write_request(
    request: EncoderRequest, model: ModelView, form: EncoderForm, settings: EncoderSettings
) -> service_pb2.ModelInferRequest:
    """Convert a request to tensors and request parameters."""
    params = request.params
    wire = service_pb2.ModelInferRequest(model_name=model.name, id=request.id)
    wire.parameters["triton_enable_empty_final_response"].bool_param = True
    for name in filter(None, (form.output, form.order, form.count, form.width)):
        wire.outputs.add(name=name)
    _FILL[form.takes](wire, model, form, request)
    used = params.input_type or settings.default_input_type
    own = settings.input_types.get(used or "")
    rows = len(request.items)
    for name, value in {**settings.inputs, **(own.inputs if own else {})}.items():
        _put_constant(wire, model, name, value, rows)
    for name, value in {**settings.parameters, **(own.parameters if own else {})}.items():
        _set_parameter(wire, name, value)
    fields = {"input_type": used, "truncate": params.truncate.upper(), "dimensions": params.dimensions}
    for name in settings.request_fields:
        if fields[name] is not None:
            _set_parameter(wire, name, fields[name])
    return wire


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
    rows, width = len(lengths), fixed_length(model, form.tensors) or max(lengths)
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
        matrix = np.full((rows, width), padding, INTEGERS.get(datatype, "<i8"))
        matrix[mask] = 1 if of is None else np.fromiter(chain.from_iterable(map(of, request.items)), matrix.dtype)
        shape = [rows, width] if model.batched or len(model.dims.get(name, ())) > 1 else [width]
        _put(wire, name, datatype, shape, matrix.tobytes())


def _fill_json(
    wire: service_pb2.ModelInferRequest, model: ModelView, form: EncoderForm, request: EncoderRequest
) -> None:
    params = {"dimensions": [request.params.dimensions]} if request.params.dimensions is not None else {}
    asked = {"input": request.items[0].text, "pooling_params": params}
    _put_texts(wire, model, form.tensors["embedding_request"], [json.dumps(asked)])
    if form.count and ASKS_COUNT in model.inputs:
        _put_constant(wire, model, ASKS_COUNT, True, 1)


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
        kind = "?" if datatype == "BOOL" else INTEGERS.get(datatype) or FLOATS.get(datatype, "<i8")
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
