"""Checks models that call others: ensembles, ``tensorrt_llm_bls`` and disaggregated serving.

Triton finds these faults only when it loads the models, or never.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any

from gateway_ops.check.findings import Finding, Severity
from gateway_ops.check.repository.models import (
    Models,
    at_tensor,
    engines,
    error,
    filled,
    of_kind,
    stock_model,
    tensors,
    warning,
)
from gateway_ops.check.repository.tensors import allowed_types, fits, is_whole, stock_tensors
from gateway_ops.check.repository.version_folders import loaded_versions
from gateway_ops.repository.difference import datatype_name
from gateway_ops.repository.model_folders import ModelFolder
from gateway_ops.repository.stock_models import ENGINE_NAMES


@dataclass(frozen=True, slots=True)
class _Tensor:
    """A tensor of the ensemble, as the model that makes or takes it declares it."""

    maker: str
    spec: Any
    filled: bool = True  # False: a placeholder stands in it, so that it cannot be compared


def check_ensemble(ensemble: ModelFolder, models: Models, *, unreadable: Set[str]) -> Iterator[Finding]:
    """Compare the steps of an ensemble with the models they name, and with each other.

    Args:
        ensemble: a model whose configuration has steps.
        models: all models of the repository whose configurations parse.
        unreadable: names of the other models; the outputs of their steps are unknown, so nothing is compared.
    """
    config = ensemble.config
    yield from _check_map(ensemble)
    if any(step.model_name in unreadable for step in config.ensemble_scheduling.step):
        return
    missing = [step.model_name for step in config.ensemble_scheduling.step if step.model_name not in models]
    if missing:  # its outputs are unknown
        run = {step.model_name for step in config.ensemble_scheduling.step} | {ensemble.path.name}
        for name in missing:
            what = f"A step runs the model {name!r}, which is not in this repository."
            yield _error(ensemble, name, what, _near(name, models.keys() - run, "Add it"))
        return
    if ensemble.path.name in {step.model_name for step in config.ensemble_scheduling.step}:
        what = "A step runs the ensemble itself; Triton rejects the model."
        yield _error(ensemble, ensemble.path.name, what, "Name another model.")
        return
    made = {tensor.name: _of("the request", tensor, ensemble) for tensor in config.input}
    for step in config.ensemble_scheduling.step:
        model = models[step.model_name]
        outputs = {tensor.name: tensor for tensor in model.config.output}
        for name, target in step.output_map.items():
            if name not in outputs:
                what = f"A step takes the output {name!r} of {step.model_name}, which does not have it."
                yield _error(ensemble, name, what, _near(name, outputs, "Remove the mapping"))
            else:
                made[target] = _of(step.model_name, outputs[name], model)
        yield from _check_step(ensemble, step, model)
    for step in config.ensemble_scheduling.step:
        yield from _check_inputs(ensemble, step, models[step.model_name], made)
    yield from _check_outputs(ensemble, made)


def _check_map(ensemble: ModelFolder) -> Iterator[Finding]:
    """Check that each tensor of an ensemble is made once and used, as Triton demands."""
    config = ensemble.config
    steps = config.ensemble_scheduling.step
    made = Counter(target for step in steps for target in step.output_map.values())
    taken = {source for step in steps for source in step.input_map.values()}
    given, answered = {tensor.name for tensor in config.input}, {tensor.name for tensor in config.output}
    for name, times in made.items():
        if times > 1:
            what = f"{times} outputs of steps are mapped to {name!r}; Triton rejects the model."
            yield _error(ensemble, name, what, "Map each to a different name.")
        elif name not in taken | answered:
            what = f"A step's output is mapped to {name!r}, which no step takes as input; Triton rejects the model."
            yield _error(
                ensemble, name, what, _near(name, (taken | answered) - given - made.keys(), "Remove the mapping")
            )
    for name in sorted(given - taken):
        what = f"The input {name!r} goes to no step; Triton rejects the model."
        yield _error(ensemble, name, what, "Map it to an input of a step, or remove it.")


def _check_step(ensemble: ModelFolder, step: Any, model: ModelFolder) -> Iterator[Finding]:
    name, there = step.model_name, loaded_versions(model)
    if step.model_version != -1 and there and step.model_version not in there:
        what = f"A step runs version {step.model_version} of {name}, of which Triton loads {_versions(there)}."
        yield _error(ensemble, name, what, "Write model_version: -1, the newest version.")
    own, other_side = ensemble.config.max_batch_size, model.config.max_batch_size
    if "max_batch_size" not in model.unfilled | ensemble.unfilled and (
        0 < other_side < own or (other_side == 0) != (own == 0)
    ):
        what = f"max_batch_size is {own}, but {other_side} in {name}."
        yield _error(ensemble, "max_batch_size", what, "Give every step at least the max_batch_size of the ensemble.")
    if ensemble.config.response_cache.enable and model.config.model_transaction_policy.decoupled:
        what = f"Its step {name} is decoupled, so it has no response cache; Triton rejects the model."
        yield _error(ensemble, "response_cache", what, "Remove response_cache.")


def _versions(numbers: list[int]) -> str:
    return f"only {numbers[0]}" if len(numbers) == 1 else " and ".join(map(str, numbers))


def _check_inputs(
    ensemble: ModelFolder, step: Any, model: ModelFolder, made: Mapping[str, _Tensor]
) -> Iterator[Finding]:
    inputs = {tensor.name: tensor for tensor in model.config.input}
    for name, source in sorted(step.input_map.items()):
        spec = inputs.get(name)
        if spec is None:
            what = f"A step sends {name!r} to {step.model_name}, which has no such input."
            yield _error(ensemble, name, what, _near(name, inputs, "Remove the mapping"))
        elif source not in made:
            what = f"{step.model_name} needs {source!r} for its input {name!r}, and no step produces it."
            severity = Severity.WARNING if spec.optional else Severity.ERROR
            found = _error(ensemble, source, what, _near(source, made, "Map an output of an earlier step to it"))
            yield Finding(severity, found.where, found.what, found.fix)
        else:
            taker = _of(f"{step.model_name} {name}", spec, model)
            yield from _compare(ensemble, taker, source, made[source])
    for name, spec in inputs.items():
        if not spec.optional and name not in step.input_map:
            what = f"{step.model_name} requires {name!r}, and the ensemble does not map it."
            yield _error(ensemble, step.model_name, what, f'Add input_map {{ key: "{name}", value: ... }}.')


def _check_outputs(ensemble: ModelFolder, made: Mapping[str, _Tensor]) -> Iterator[Finding]:
    for tensor in ensemble.config.output:
        if tensor.name not in made or made[tensor.name].maker == "the request":
            what = f"The output {tensor.name!r} is declared, and no step produces it."
            yield _error(ensemble, tensor.name, what, "Map a step's output to it, or remove it.")
        else:
            yield from _compare(ensemble, _of("the answer", tensor, ensemble), tensor.name, made[tensor.name])


def _of(who: str, spec: Any, model: ModelFolder) -> _Tensor:
    return _Tensor(who, spec, filled=spec.name not in model.unfilled)


def _compare(ensemble: ModelFolder, taker: _Tensor, name: str, source: _Tensor) -> Iterator[Finding]:
    spec = taker.spec
    if not (taker.filled and source.filled and is_whole(spec) and is_whole(source.spec)):
        return  # the fault has a finding of its own
    if spec.data_type != source.spec.data_type:
        other_side, own = datatype_name(source.spec), datatype_name(spec)
        what = f"{name!r} is {other_side} from {source.maker}, but {own} for {taker.maker}."
        yield _error(ensemble, name, what, "Declare the same data_type in both configurations.")
    elif not fits(list(source.spec.dims), list(spec.dims)):
        what = (
            f"{name!r} has dims {list(source.spec.dims)} from {source.maker}, but {list(spec.dims)} for {taker.maker}."
        )
        yield _error(ensemble, name, what, "Declare the same dims in both configurations.")


def _error(model: ModelFolder, at: str, what: str, fix: str) -> Finding:
    return Finding(Severity.ERROR, at_tensor(model, at), what, fix)


def _near(name: str, known: Iterable[str], otherwise: str) -> str:
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.75) or [
        one for one in names if one.endswith(f"_{name}")
    ]
    return f"Did you mean {close[0]!r}?" if close else f"{otherwise}."


_BLS = "tensorrt_llm_bls"
# Parameter, stock model, and whether its stock name is the default.
_CALLEES = (
    ("preprocessing_model_name", "preprocessing", True),
    ("tensorrt_llm_model_name", "tensorrt_llm", True),
    ("postprocessing_model_name", "postprocessing", True),
    ("tensorrt_llm_draft_model_name", "tensorrt_llm", False),
    ("context_model_name", "tensorrt_llm", False),
    ("generation_model_name", "tensorrt_llm", False),
)


def check_callers(models: Models, *, unreadable: Set[str]) -> Iterator[Finding]:
    """Check that called models exist, have the right kind, and fit.

    Args:
        models: all models of the repository whose configurations parse.
        unreadable: names of the other models.
    """
    bls = of_kind(models, _BLS)
    for name, model in models.items():
        for parameter, stock, by_default in _CALLEES:
            written = filled(model, parameter)
            called = written or (stock if by_default and name in bls else "")
            if called and called not in models.keys() | unreadable:
                yield _missing(models, model, parameter, called, written=bool(written))
            elif written in models and stock_model(models[written]) not in (stock, None):
                what = f"{parameter} is {written!r}, which is not a {stock} model."
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
    """Check that both models have the same type where deployers choose it: logits, tables and adapters."""
    if engine is None or stock_model(engine) != "tensorrt_llm":
        return
    for kind in ("input", "output"):
        known, other_side = stock_tensors(_BLS, kind), tensors(engine, kind)
        for name, tensor in tensors(model, kind).items():
            other = other_side.get(ENGINE_NAMES.get(name, name))
            if name not in known or other is None or {name, other.name} & (model.unfilled | engine.unfilled):
                continue
            allowed = allowed_types(known[name])
            if len(allowed) > 1 and datatype_name(tensor) != datatype_name(other):
                own, its = datatype_name(tensor), datatype_name(other)
                what = f"The {kind} {name!r} is {own}, but {its} in {engine.path.name}, which it calls."
                fix = "Declare the same data_type in both configurations."
                if {own, its} <= {*allowed}:  # `tensors.py` reports a type that is not allowed
                    yield Finding(Severity.ERROR, at_tensor(model, name), what, fix)


def _check_drafting(model: ModelFolder, models: Models) -> Iterator[Finding]:
    """Check what a draft model needs: an input that asks for guesses, and a target that takes them."""
    key = "tensorrt_llm_draft_model_name"
    drafting = f"{key} is set"
    draft, name = filled(model, key), filled(model, "tensorrt_llm_model_name") or "tensorrt_llm"
    if draft == name:
        what = f"{key} is {draft!r}, which is the target itself: every token is computed twice without a benefit."
        yield warning(model, key, what, "Name a smaller model, or remove it.")
    inputs = tensors(model, "input")
    if "text_input" in inputs and "num_draft_tokens" not in inputs:
        what = f"{drafting}, but the input num_draft_tokens is missing: requests cannot use drafts."
        yield warning(model, key, what, _declare("num_draft_tokens"))
    target: Any = models.get(name)
    if target is not None and "draft_input_ids" not in tensors(target, "input"):
        what = f"{drafting} in {model.path.name}, but {name} has no input draft_input_ids: it does not accept drafts."
        yield warning(target, "input", what, _declare("draft_input_ids"))


def drafts_for(models: Models) -> set[frozenset[str]]:
    """Find pairs of engines of which one drafts for the other."""
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
    return f"Declare the input {name} as TensorRT-LLM's own template does, or render the model again."
