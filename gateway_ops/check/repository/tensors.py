"""Compares the tensors of each model with the contract's tables: names, types, dims and required ones.

An ensemble's maps only show where two models disagree. The gateway calls the engine itself, by the names and types of
wire contract 1.1 to 1.6, so a repository may agree with itself and still be of no use to it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Set
from typing import Any

from gateway.text.contract import TensorSpec
from gateway_ops.check.findings import Finding, Severity
from gateway_ops.check.repository.models import Models, at_tensor, stock_model, tensors
from gateway_ops.repository.difference import datatype_name
from gateway_ops.repository.model_folders import ModelFolder
from gateway_ops.repository.stock_models import MODELS

# Inputs without which no request gets a response, and outputs without which no client finds the answer.
_NEEDED = {
    "tensorrt_llm": ({"input_ids", "input_lengths", "request_output_len"}, {"output_ids", "sequence_length"}),
    "tensorrt_llm_bls": ({"text_input", "max_tokens"}, {"text_output"}),
    "ensemble": ({"text_input", "max_tokens"}, {"text_output"}),
    "preprocessing": ({"QUERY", "REQUEST_OUTPUT_LEN"}, {"INPUT_ID", "REQUEST_INPUT_LEN", "REQUEST_OUTPUT_LEN"}),
    "postprocessing": ({"TOKENS_BATCH", "SEQUENCE_LENGTH"}, {"OUTPUT"}),
}
_STREAMING = {"tensorrt_llm": "streaming", "tensorrt_llm_bls": "stream", "ensemble": "stream"}
# Deployers choose these by template variables, or by the type that the engine was built with.
_FLOATS = ("FP16", "FP32", "BF16")
_OF_ANY_FLOAT = frozenset({"prompt_embedding_table", "encoder_input_features", "lora_weights", "image_input"})
_OF_ANY_SHAPE = frozenset({"image_input"})  # of other dims in 0.12
_KINDS = ("input", "output")


def check_tables(models: Models) -> Iterator[Finding]:
    """Compare each model that resembles a stock model with that model's tensors in all known versions."""
    for name, model in models.items():
        stock = stock_model(model)
        if stock in MODELS:
            mapped = _mapped(models, name)
            for kind in _KINDS:
                yield from _check_kind(model, stock, kind, mapped[kind])
            yield from _check_streaming(model, stock)


def allowed_types(spec: TensorSpec) -> tuple[str, ...]:
    """The allowed datatypes of a tensor, without ``TYPE_``."""
    if spec.datatype == "LOGITS" or spec.name in _OF_ANY_FLOAT:
        return _FLOATS
    return (spec.datatype,)


def fits(dims: list[int], other: list[int]) -> bool:
    """Tell whether Triton accepts one shape for another: as many dimensions, of equal size unless one varies."""
    return len(dims) == len(other) and all(a == b or -1 in (a, b) for a, b in zip(dims, other, strict=True))


def is_whole(tensor: Any) -> bool:
    """Tell whether a tensor has a type and possible dims, without which Triton rejects it."""
    return bool(tensor.data_type and tensor.dims) and all(size > 0 or size == -1 for size in tensor.dims)


def stock_tensors(stock: str, kind: str) -> dict[str, TensorSpec]:
    """The inputs or outputs of a stock model, by each of their names, current and former."""
    spec = MODELS[stock]
    return {name: tensor for tensor in (spec.inputs if kind == "input" else spec.outputs) for name in tensor.names}


def _mapped(models: Models, name: str) -> dict[str, set[str]]:
    """The inputs and outputs of a model that ensembles map; `wiring` reports those that are missing."""
    steps = [
        step for model in models.values() for step in model.config.ensemble_scheduling.step if step.model_name == name
    ]
    return {
        "input": {name for step in steps for name in step.input_map},
        "output": {name for step in steps for name in step.output_map},
    }


def _check_kind(model: ModelFolder, stock: str, kind: str, mapped: Set[str]) -> Iterator[Finding]:
    known, declared = stock_tensors(stock, kind), tensors(model, kind)
    needed = _NEEDED[stock][_KINDS.index(kind)]
    absent = {name: spec for name, spec in known.items() if not declared.keys() & {*spec.names}}
    meant: set[str] = set()
    for name, tensor in declared.items():
        if name in known:
            yield from _check_tensor(model, stock, kind, known[name], tensor)
        elif (near := _near(name, absent)) and near not in mapped:
            meant.add(near)
            what = f"The {kind} {name!r} is not one of {stock}'s."
            severity = Severity.ERROR if near in needed else Severity.WARNING
            yield Finding(severity, at_tensor(model, name), what, f"Did you mean {near!r}?")
    for name in sorted(needed & absent.keys() - meant - mapped):
        what = f"It has no {kind} {name!r}, which {stock} needs for every request."
        yield Finding(Severity.ERROR, at_tensor(model, kind), what, declaration(kind, known[name]))


def _check_tensor(model: ModelFolder, stock: str, kind: str, spec: TensorSpec, tensor: Any) -> Iterator[Finding]:
    if not is_whole(tensor):
        return
    declared, allowed = datatype_name(tensor), allowed_types(spec)
    where = at_tensor(model, tensor.name)
    if declared not in allowed and tensor.name not in model.unfilled:
        what = f"The {kind} {tensor.name!r} is {declared}; {stock} declares it as {_either(allowed)}."
        yield Finding(Severity.ERROR, where, what, f"Write data_type: {_type_name(spec)}.")
    dims = list(tensor.dims)
    batches = model.config.max_batch_size > 0 or "max_batch_size" in model.unfilled  # else dims begin with the batch
    if batches and spec.name not in _OF_ANY_SHAPE and not fits(dims, list(spec.dims)):
        what = f"The {kind} {tensor.name!r} has dims {dims}; {stock} declares {list(spec.dims)}."
        yield Finding(Severity.ERROR, where, what, f"Write dims: {list(spec.dims)}.")


def _check_streaming(model: ModelFolder, stock: str) -> Iterator[Finding]:
    name = _STREAMING.get(stock)
    if name is not None and name not in tensors(model, "input"):
        what = f"It has no input {name!r}: answers cannot be streamed."
        spec = stock_tensors(stock, "input")[name]
        yield Finding(Severity.WARNING, at_tensor(model, "input"), what, declaration("input", spec))


def declaration(kind: str, spec: TensorSpec) -> str:
    """Write the declaration of a tensor."""
    dims, optional = list(spec.dims), " optional: true" if kind == "input" and spec.optional else ""
    return f'Declare {kind} {{ name: "{spec.name}" data_type: {_type_name(spec)} dims: {dims}{optional} }}.'


def _either(words: tuple[str, ...]) -> str:
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last


def _type_name(spec: TensorSpec) -> str:
    return f"TYPE_{'FP32' if spec.datatype == 'LOGITS' else spec.datatype}"


def _near(name: str, absent: Mapping[str, TensorSpec]) -> str | None:
    """Find the absent tensor that an unknown name was meant to be."""
    by_lower = {known.lower(): known for known in absent}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.85)
    return by_lower[close[0]] if close else None
