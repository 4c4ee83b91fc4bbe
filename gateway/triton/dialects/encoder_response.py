"""Reads the response of an encoder: vectors or scores by item, pooled, scaled and activated."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from tritonclient.grpc import service_pb2

from gateway.generation.encoder import EncodedItems, EncoderRequest, unit_rows
from gateway.generation.engine import MalformedOutputError
from gateway.settings.encoder_settings import EncoderSettings
from gateway.settings.model_settings import Task
from gateway.text.tokens.encoder_tokenizer import EncoderInput
from gateway.triton.dialects.encoder_form import NUMPY_TYPES, OUTPUTS, EncoderForm

_SUM_ERROR: Final = 5e-3  # of probabilities that were rounded to BF16


def read_response(
    response: service_pb2.ModelInferResponse,
    request: EncoderRequest,
    form: EncoderForm,
    settings: EncoderSettings,
    task: Task,
) -> EncodedItems:
    """Read the response to a request.

    Raises:
        MalformedOutputError: it is not one of the form.
    """
    rows = len(request.items)
    read = dict(_outputs(response))
    outputs = {name: each[:rows] if np.shape(each)[:1] == (form.rows,) else each for name, each in read.items()}
    raw = read.get(form.output)
    values = _vectors_of_json(raw) if form.input_kind == "json" else raw
    if not isinstance(values, np.ndarray) or not values.size:
        raise MalformedOutputError(f"{form.output} is not {rows} rows of numbers")
    values = _rows(values, form.rows or rows, form, read.get(form.width or ""))[:rows]
    if form.hidden:
        values = _pooled(values, request.items, form, settings.pooling)
    if form.hidden if settings.normalize is None else settings.normalize:
        values = unit_rows(values)
    values = _activated(values, form, settings, task)
    counts = outputs.get(form.count or "")
    token_counts = _counts(counts, rows) if isinstance(counts, np.ndarray) else None
    if form.count and token_counts is None and not any(item.ids for item in request.items):
        raise MalformedOutputError(f"the output {form.count} is missing, and no tokenizer counts")
    if form.order is not None:
        values = _unsorted(values, outputs.get(form.order))
    return EncodedItems(values.astype(np.float32, copy=False), token_counts)


def _activated(values: NDArray[Any], form: EncoderForm, settings: EncoderSettings, task: Task) -> NDArray[Any]:
    """Scores as probabilities, where the model gives logits."""
    how, name = settings.activation, form.output.lower()
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
        if settings.activation == "auto" and not of_logits:
            sums = wide.sum(axis=1, keepdims=True)
            sure = np.isclose(sums, 1, rtol=0, atol=_SUM_ERROR) & (wide >= 0).all(axis=1, keepdims=True)
            found = np.where(sure, wide, found)  # those are probabilities
    return np.where(np.isfinite(wide), found, np.nan)  # an infinite score is a fault, not a certainty


def _outputs(response: service_pb2.ModelInferResponse) -> Iterator[tuple[str, NDArray[Any] | bytes]]:
    """The outputs by name: numbers as arrays of their shape, strings as they came."""
    if len(response.outputs) != len(response.raw_output_contents):
        raise MalformedOutputError(f"{len(response.raw_output_contents)} contents of {len(response.outputs)} outputs")
    for output, raw in zip(response.outputs, response.raw_output_contents, strict=True):
        kind = {**NUMPY_TYPES, **OUTPUTS}.get(output.datatype)
        if kind is None:
            yield output.name, raw
            continue
        name, shape = output.name, tuple(output.shape)
        if min(shape, default=0) < 0 or math.prod(shape) * np.dtype(kind).itemsize != len(raw):
            raise MalformedOutputError(f"{name} has {len(raw)} bytes and the shape {list(shape)}")
        values = np.frombuffer(raw, kind).reshape(shape)
        yield name, (values.astype("<u4") << 16).view("<f4") if output.datatype == "BF16" else values


def _vectors_of_json(raw: NDArray[Any] | bytes | None) -> NDArray[np.float32]:
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
    by_ids = form.input_kind == "ids" or rows > 1
    lengths = np.array([len(item.ids) if by_ids else width for item in items])
    if lengths.min() < 1 or lengths.max() > width:
        raise MalformedOutputError(f"{width} vectors of texts with {lengths.tolist()[:8]} tokens")
    if pooling == "cls":
        return values[:, 0]
    if pooling == "last":
        last: NDArray[Any] = values[np.arange(rows), lengths - 1]
        return last
    return np.stack([row[:length].mean(axis=0, dtype=np.float32) for row, length in zip(values, lengths, strict=True)])


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
