"""Finds faults of a repository that harm chat although Triton loads it (wire contract 1.5, 2.1, 2.5 and 3.2)."""

from __future__ import annotations

from collections.abc import Iterator

from gateway_ops.check.findings import Finding, Severity
from gateway_ops.check.repository.models import (
    FALSE_WORDS,
    Models,
    at,
    engines,
    error,
    filled,
    instance_count,
    is_count,
    is_native,
    of_kind,
    tensors,
    warning,
)
from gateway_ops.repository.model_folders import ModelFolder

# Parameters of models that run an engine; one that calls engines has the same tensors.
_OF_ENGINES = ("gpt_model_path", "gpt_model_type", "engine", "engine_dir")


def check_chat(models: Models) -> Iterator[Finding]:
    """Find faults that harm streams and texts."""
    for model in engines(models).values():
        if is_native(model) or any(name in model.config.parameters for name in _OF_ENGINES):
            yield from _check_engine(model)
    for model in of_kind(models, "postprocessing").values():
        yield from _check_postprocessing(model, recent=_is_recent(models))
    for model in of_kind(models, "tensorrt_llm_bls").values():
        yield from _check_bls(model)
    yield from _check_cancel(models)


def _is_recent(models: Models) -> bool:
    """Whether a model has a tensor that was renamed in 0.20, when Triton began to call back from several threads."""
    return any("seed" in tensors(model, "input") for model in models.values())


def _check_engine(model: ModelFolder) -> Iterator[Finding]:
    beams = filled(model, "max_beam_width")
    many_beams = is_count(beams) and int(beams) > 1
    if many_beams and filled(model, "engine") == "llmapi":
        what = "It serves beam search only: requests without use_beam_search are rejected."
        yield Finding(Severity.INFO, at(model, "max_beam_width"), what, "Use another model for chat.")
    elif many_beams and "engine" in model.config.parameters:
        what = f"max_beam_width is {beams}: of the Python engines only llmapi supports beam search."
        yield warning(model, "max_beam_width", what, "Set 1.")
    elif many_beams and filled(model, "decoding_mode") == "beam_search":
        what = "It serves beam search: requests with use_beam_search, which cannot be streamed."
        yield Finding(Severity.INFO, at(model, "decoding_mode"), what, "Use another model for chat.")
    elif many_beams:
        what = f"max_beam_width is {beams}: without a decoding_mode every request is decoded by beams, not sampled."
        fix = "Set 1, and serve beams by another model with decoding_mode beam_search."
        yield warning(model, "max_beam_width", what, fix)
    echo = filled(model, "exclude_input_in_output").lower()
    if echo != "true":
        # A value that is set on purpose is not a mistake: the gateway streams, and a streamed answer has no echo.
        severity = Severity.INFO if echo else Severity.WARNING
        what = "Answers that are not streamed begin with the prompt."
        yield Finding(severity, at(model, "exclude_input_in_output"), what, "Set exclude_input_in_output to true.")
    mode = filled(model, "decoding_mode")
    if mode in ("top_k", "top_p"):
        what = f"decoding_mode is {mode}: requests with the other sampling parameter get empty responses."
        yield error(model, "decoding_mode", what, "Remove it.")
    if is_native(model) and filled(model, "enable_kv_cache_reuse").lower() in FALSE_WORDS:
        what = "KV-cache reuse is off: each turn of a chat recomputes the whole history."
        fix = "Set enable_kv_cache_reuse to true, with an engine built with use_paged_context_fmha."
        yield Finding(Severity.INFO, at(model, "enable_kv_cache_reuse"), what, fix)


def _check_postprocessing(model: ModelFolder, *, recent: bool) -> Iterator[Finding]:
    count, config = instance_count(model), model.config
    if count > 1:
        what = f"{count} instances can deliver streamed pieces out of order."
        yield error(model, "instance_group", what, "Set count: 1.")
    if config.HasField("dynamic_batching") and not config.dynamic_batching.preserve_ordering:
        # One instance keeps the order, but with dynamic batching no longer since Triton 25.07 (core #438).
        severity = Severity.WARNING if recent else Severity.INFO
        what = "With dynamic_batching Triton 25.07 and newer can deliver streamed pieces out of order."
        fix = "Write dynamic_batching { preserve_ordering: true }, or remove dynamic_batching."
        yield Finding(severity, at(model, "dynamic_batching"), what, fix)
    if filled(model, "skip_special_tokens").lower() in FALSE_WORDS:
        what = "Control tokens such as <|eot_id|> appear in the text."
        yield warning(model, "skip_special_tokens", what, "Set skip_special_tokens to true.")


def _check_bls(model: ModelFolder) -> Iterator[Finding]:
    count = instance_count(model)
    # This project's model serves many requests in one instance, and says how many; upstream's serves one.
    unknown = model.unfilled & {"instance_group", "max_batch_size"}
    if "max_concurrent_requests" not in model.config.parameters and count < model.config.max_batch_size and not unknown:
        what = f"{count} instances serve {count} requests at a time: upstream's model serves one request per instance."
        fix = f"Set count: {model.config.max_batch_size}, or render this project's tensorrt_llm_bls."
        yield warning(model, "instance_group", what, fix)


def _check_cancel(models: Models) -> Iterator[Finding]:
    """Check for the input `stop`: a cancelled call ends at the ensemble, not at its engine (wire contract 3.6)."""
    steps = {step.model_name for model in models.values() for step in model.config.ensemble_scheduling.step}
    for name, model in engines(models).items():
        if name in steps and not any(tensor.name == "stop" for tensor in model.config.input):
            what = "It has no input stop: when a client of the ensemble disconnects, generation continues to the end."
            fix = 'Declare input { name: "stop" data_type: TYPE_BOOL dims: 1 reshape { } optional: true }.'
            yield warning(model, "input", what, fix)
