"""Models that call others by name: ``tensorrt_llm_bls``, and upstream's model of disaggregated serving."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Set
from typing import Any

from gateway_ops.checking.findings import Finding, Severity
from gateway_ops.checking.repository_models import (
    Models,
    at,
    at_tensor,
    engines,
    error,
    filled,
    of_kind,
    stock_model,
    tensors,
    warning,
)
from gateway_ops.checking.repository_tables import allowed_types, known_tensors
from gateway_ops.repository.difference import datatype_name
from gateway_ops.repository.model_folders import ModelFolder
from gateway_ops.repository.stock_models import ENGINE_NAMES

_BLS = "tensorrt_llm_bls"
# Parameter, stock model, and whether it is called by its stock name where nothing is said.
_CALLEES = (
    ("preprocessing_model_name", "preprocessing", True),
    ("tensorrt_llm_model_name", "tensorrt_llm", True),
    ("postprocessing_model_name", "postprocessing", True),
    ("tensorrt_llm_draft_model_name", "tensorrt_llm", False),
    ("context_model_name", "tensorrt_llm", False),
    ("generation_model_name", "tensorrt_llm", False),
)


def check_callers(models: Models, *, unreadable: Set[str]) -> Iterator[Finding]:
    """Check that the models which others call are there, are what they are called for, and fit.

    Args:
        models: all models of the repository whose configurations parse.
        unreadable: names of the others.
    """
    bls = of_kind(models, _BLS)
    for name, model in models.items():
        for parameter, stock, by_default in _CALLEES:
            written = filled(model, parameter)
            called = written or (stock if by_default and name in bls else "")
            if called and called not in models.keys() | unreadable:
                yield _missing(models, model, parameter, called, written=bool(written))
            elif written in models and stock_model(models[written]) not in (stock, None):
                what = f"{parameter} is {written!r}, which is no {stock}."
                yield error(model, parameter, what, _which(models, stock))
        if name in bls:
            yield from _check_types(model, models.get(filled(model, "tensorrt_llm_model_name") or "tensorrt_llm"))
        if filled(model, "tensorrt_llm_draft_model_name"):
            yield from _check_drafting(model, models)


def _missing(models: Models, model: ModelFolder, parameter: str, called: str, *, written: bool) -> Finding:
    if written:
        what = f"{parameter} is {called!r}, which is not in this repository."
        close = difflib.get_close_matches(called, sorted(models.keys() - {model.path.name}), n=1, cutoff=0.75)
        end = f"; did you mean {close[0]!r}?" if close else "."
        return error(model, parameter, what, f"Name a model of this repository{end}")
    what = f"It calls {called}, which is not in this repository."
    return error(model, parameter, what, f"Add it, name another in {parameter}, or remove {model.path.name}.")


def _which(models: Models, stock: str) -> str:
    there = sorted(of_kind(models, stock))
    return f"Name {there[0]!r}." if len(there) == 1 else f"Name a model that does what {stock} does."


def _check_types(model: ModelFolder, engine: ModelFolder | None) -> Iterator[Finding]:
    """Logits, tables and adapters go through as they are: where deployers choose the type, both have the same."""
    if engine is None or stock_model(engine) != "tensorrt_llm":
        return
    for kind in ("input", "output"):
        known, theirs = known_tensors(_BLS, kind), tensors(engine, kind)
        for name, tensor in tensors(model, kind).items():
            other = theirs.get(ENGINE_NAMES.get(name, name))
            if name not in known or other is None or {name, other.name} & (model.unfilled | engine.unfilled):
                continue
            allowed = allowed_types(known[name])
            if len(allowed) > 1 and datatype_name(tensor) != datatype_name(other):
                ours, its = datatype_name(tensor), datatype_name(other)
                what = f"The {kind} {name!r} is {ours}, but {its} in {engine.path.name}, which it calls."
                fix = "Declare the same data_type in both configurations."
                if {ours, its} <= {*allowed}:  # else the tables say which is wrong
                    yield Finding(Severity.ERROR, at_tensor(model, name), what, fix)


def _check_drafting(model: ModelFolder, models: Models) -> Iterator[Finding]:
    """What a draft model needs beside itself: a request that asks for guesses, and a target that takes them."""
    key = "tensorrt_llm_draft_model_name"
    drafting = f"{key} is set"
    draft, name = filled(model, key), filled(model, "tensorrt_llm_model_name") or "tensorrt_llm"
    if draft == name:
        what = f"{key} is {draft!r}, which is its own target: every token is computed twice, and nothing is gained."
        yield warning(model, key, what, "Name a smaller model, or remove it.")
    inputs = tensors(model, "input")
    if "text_input" in inputs and "num_draft_tokens" not in inputs:
        what = f"{drafting}, but there is no input num_draft_tokens: no request can ask for drafts."
        yield warning(model, key, what, _declare("num_draft_tokens"))
    target: Any = models.get(name)
    if target is not None and "draft_input_ids" not in tensors(target, "input"):
        what = f"{drafting} in {model.path.name}, but {name} has no input draft_input_ids: it takes no drafts."
        yield Finding(Severity.WARNING, at(target, "input"), what, _declare("draft_input_ids"))


def drafts_for(models: Models) -> set[frozenset[str]]:
    """Pairs of engines of which one drafts for the other."""
    called = [
        frozenset(
            {filled(model, "tensorrt_llm_draft_model_name"), filled(model, "tensorrt_llm_model_name") or "tensorrt_llm"}
        )
        for model in models.values()
        if filled(model, "tensorrt_llm_draft_model_name")
    ]
    there = engines(models).keys()
    return {pair for pair in called if pair <= there}


def _declare(name: str) -> str:
    return f"Declare the input {name} as TensorRT-LLM's own template does, or render the model anew."
