"""Rules of what can be served: the one source for discovery, which reads a running Triton, and for ``gateway check``.

A model that breaks a rule breaks it until its repository or the gateway's settings change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Literal

from gateway.text.contract import PLAIN_TEXT, ModelSpec
from gateway.triton import hints
from gateway.triton.abilities import EngineOptions, read_abilities
from gateway.triton.error_mapping import LLMAPI_WITH_ADAPTERS
from gateway.triton.llmapi_dialect import read_dialect
from gateway.triton.model_view import ModelView
from gateway.triton.pipeline import Models, is_own_bls
from gateway.triton.tensors.request_encoder import RequestEncoder
from gateway.triton.text_path import TextPath, is_decoupled, read_text_path
from gateway.triton.vllm_dialect import read_vllm

EnginePath = Literal["auto", "tokens", "ensemble", "llmapi", "vllm", "text"]

_ALWAYS = {"end_id", "pad_id", "exclude_input_in_output", "seed"}
ALWAYS_TOKENS = frozenset(_ALWAYS | {"input_ids", "input_lengths", "request_output_len", "streaming"})
ALWAYS_ENSEMBLE = frozenset(_ALWAYS | {"text_input", "max_tokens", "stream"})
ALWAYS_LLMAPI = frozenset(
    {
        "text_input",
        "streaming",
        "sampling_param_max_tokens",
        "sampling_param_exclude_input_from_output",
        "return_finish_reason",
    }
)
"""Without any of these the LLM API's model gives another answer than was asked for, or does not say why it ended."""
ALWAYS_VLLM = frozenset({"text_input", "stream", "sampling_parameters"})
ALWAYS_PLAIN = frozenset(
    {
        *("text_input", "stream", "max_tokens", "temperature", "top_p", "exclude_input_in_output"),
        *("return_finish_reason", "return_num_input_tokens", "return_num_output_tokens"),
    }
)
"""Sent to a plain text model where it declares them."""

SERVED_KINDS = (
    "an ensemble or a BLS model of TensorRT-LLM (text_input and max_tokens), its engine model (input_ids, "
    "input_lengths and request_output_len), the model of its LLM API (text_input and sampling_param_*), one of "
    "Triton's vLLM backend (text_input and sampling_parameters), or another with text_input and text_output"
)
"""Kinds of models that a gateway can be pointed at, for sentences on what was expected."""
_MOST_TENSORS = 6


class DiscoveryError(ValueError):
    """What is configured cannot be served; the message says why, in one sentence."""


def check(models: Models, path: EnginePath) -> None:
    """Reject models that cannot be served.

    Raises:
        DiscoveryError: with the reason.
    """
    entry, engine = models.entry, models.engine
    name = entry.name
    if models.llmapi:
        _check_llmapi(entry, path)
    elif models.vllm or models.plain:
        _check_text_model(models, path)
    elif path in ("vllm", "text"):
        raise DiscoveryError(f"path: {path} is configured, but {name!r} is {_ANOTHER[path]}; set path: auto")
    elif path == "llmapi":
        raise DiscoveryError(f"path: llmapi is configured, but model {name!r} has no inputs sampling_param_*")
    elif models.bls:
        _check_bls(models, path)
        _check_engine_name(entry)
    elif models.pipeline is None:
        if engine is None:
            raise DiscoveryError(_of_no_kind(entry))
        if path == "ensemble":
            raise DiscoveryError(f"path: ensemble is configured, but model {name!r} is an engine model")
    elif path == "tokens" and engine is None:
        raise DiscoveryError(f"path: tokens is configured, but exactly one step of {name!r} must take token ids")


def _of_no_kind(model: ModelView) -> str:
    if not model.inputs and not model.outputs:
        return (
            f"model {model.name!r} declares no tensors; supported are {SERVED_KINDS}. A model with an auto-completed "
            "configuration needs tritonserver without --disable-auto-complete-config"
        )
    if {"text_input", "max_tokens", "end_id"} <= model.inputs:
        return (
            f"model {model.name!r} has the inputs of TensorRT-LLM's BLS model without its parameter accumulate_tokens; "
            "set it in its config.pbtxt"
        )
    return (
        f"model {model.name!r} is of an unsupported kind: its inputs are {_some(model.inputs)} and its outputs "
        f"{_some(model.outputs)}; supported are {SERVED_KINDS}"
    )


def _some(names: frozenset[str]) -> str:
    shown = ", ".join(sorted(names)[:_MOST_TENSORS])
    return f"{shown}, ..." if len(names) > _MOST_TENSORS else shown or "nothing"


def _check_bls(models: Models, path: EnginePath) -> None:
    entry, engine = models.entry, models.engine
    if path == "tokens":
        raise DiscoveryError(f"path: tokens is configured, but {entry.name!r} is a BLS model, which only reads text")
    if engine is not None and engine.decoupled and not entry.decoupled:
        raise DiscoveryError(
            f"the BLS model {entry.name!r} is not decoupled and cannot call the decoupled model {engine.name!r}; "
            "set model_transaction_policy { decoupled: true } in the config.pbtxt of both models or of neither"
        )


def _check_engine_name(model: ModelView) -> None:
    name = model.parameters.get("tensorrt_llm_model_name", "")
    # Upstream's model takes an unfilled name for the default since 0.13, which brought this parameter.
    reads_defaults = is_own_bls(model) or "multimodal_encoders_name" in model.parameters
    if name.startswith("${") and not reads_defaults:
        raise DiscoveryError(
            f"the BLS model {model.name!r} calls engine model {name!r}, which is an unfilled template placeholder; "
            "set tensorrt_llm_model_name to the name of the engine model"
        )


def _check_llmapi(model: ModelView, path: EnginePath) -> None:
    if path not in ("auto", "llmapi"):
        raise DiscoveryError(f"path: {path} is configured, but {model.name!r} is a model of the LLM API (path: llmapi)")
    lacks = sorted((ALWAYS_LLMAPI - model.inputs) | ({"text_output", "finish_reason"} - model.outputs))
    if lacks:
        raise DiscoveryError(f"model {model.name!r} of the LLM API lacks tensors of the stock one: {', '.join(lacks)}")
    if model.batched:
        raise DiscoveryError(
            f"model {model.name!r} of the LLM API has a max_batch_size above 0, which its code does not support; set "
            "it to 0"
        )


_ANOTHER = {
    "vllm": "not a model of the vLLM backend (text_input and sampling_parameters)",
    "text": "not a plain text model (text_input and text_output), or a model of a more specific kind",
}


def _check_text_model(models: Models, path: EnginePath) -> None:
    model = models.entry
    own, kind = ("vllm", "a model of the vLLM backend") if models.vllm else ("text", "a plain text model")
    if path not in ("auto", own):
        raise DiscoveryError(f"path: {path} is configured, but {model.name!r} is {kind} (path: {own})")
    if models.vllm and not (model.decoupled and "stream" in model.inputs):
        raise DiscoveryError(
            f"model {model.name!r} of the vLLM backend must be decoupled and have the input stream; set"
            " model_transaction_policy { decoupled: true } in its config.pbtxt, or remove the tensors from its"
            " config.pbtxt"
        )
    if model.batched and models.vllm:
        raise DiscoveryError(f"model {model.name!r} of the vLLM backend has a max_batch_size above 0; set it to 0")
    if models.plain:
        _check_forms(model)


def _check_forms(model: ModelView) -> None:
    """Reject a plain text model whose inputs or outputs would make every request fail."""
    wide = sorted({name for tensor in PLAIN_TEXT.inputs for name in tensor.names} & model.inputs - model.single)
    if wide:
        raise DiscoveryError(
            f"model {model.name!r} declares more than one element for {', '.join(wide)}; set dims: [ 1 ]"
        )
    for tensor in PLAIN_TEXT.outputs:
        declared = model.answered.get(tensor.name, tensor.wire_datatype)
        if declared not in (tensor.wire_datatype, f"U{tensor.wire_datatype}"):
            raise DiscoveryError(
                f"the output {tensor.name} of model {model.name!r} is declared as {declared}, but must be "
                f"{tensor.wire_datatype}; change its type or its name"
            )


def broken_by_adapters(model: str) -> str:
    """Word the error for an LLM API model before 1.3 that loads adapters, as its yaml or a request shows."""
    return f"model {model!r}: {LLMAPI_WITH_ADAPTERS.rstrip('.')}; remove lora_config, or upgrade to 1.3"


def check_text(models: Models, options: EngineOptions) -> None:
    """Reject an ensemble or a BLS model if the text of its answers cannot be determined.

    Raises:
        DiscoveryError: with the reason.
    """
    name = models.entry.name
    if not models.entry.inputs >= {"text_input", "max_tokens"}:
        raise DiscoveryError(_of_no_kind(models.entry))
    if "text_output" not in models.entry.outputs:
        raise DiscoveryError(f"ensemble {name!r} has no output text_output")
    if read_text_path(models, options).echoes:
        raise DiscoveryError(
            f"model {name!r} returns the prompt before the answer and has no input exclude_input_in_output; set the "
            "parameter exclude_input_in_output of its engine model to true, or set path: tokens"
        )


def _decoupled(view: ModelView) -> ModelView:
    return replace(view, decoupled=True)


def _accumulating(view: ModelView) -> ModelView:
    return replace(view, parameters={**view.parameters, "accumulate_tokens": "true"})


def _unnormalized(view: ModelView) -> ModelView:
    return replace(view, parameters={**view.parameters, "normalize_log_probs": "false"})


# What of a configuration may cost something of an answer, and is tried to tell what.
_CHANGES: Mapping[str, Callable[[ModelView], ModelView]] = {
    "Set model_transaction_policy { decoupled: true }.": _decoupled,
    "Set accumulate_tokens to true.": _accumulating,
    "Set normalize_log_probs to false, or logits_for_logprobs in the gateway.": _unnormalized,
}
_ENGINE_STEP = "Set path: tokens, so that the gateway calls the engine step with token ids."


def losses(models: Models, options: EngineOptions, path: EnginePath = "ensemble") -> dict[str, str]:
    """Say what is lost of answers: nothing where they come as token ids, one response after the other.

    Args:
        models: behind the model that is called.
        options: of the operator.
        path: ``tokens`` where the engine model is called, also behind an ensemble.

    Returns:
        One sentence for each loss, without a capital and without a full stop, and one on what cures it; that is empty
        where no change of the configuration does.
    """
    said = _lost(models, options, path)
    if models.plain:
        return dict.fromkeys(said, "")  # no configuration makes its code do more
    left = {fix: _lost(_changed(models, change), options, path) for fix, change in _CHANGES.items()} if said else {}
    # Of an ensemble only the text path has more of them: it is not on it unless something is wrong.
    otherwise = _ENGINE_STEP if models.pipeline is not None and path != "tokens" else ""
    return {loss: next((fix for fix, rest in left.items() if loss not in rest), otherwise) for loss in said}


def _changed(models: Models, change: Callable[[ModelView], ModelView]) -> Models:
    return replace(models, entry=change(models.entry), engine=models.engine and change(models.engine))


def _lost(models: Models, options: EngineOptions, path: EnginePath) -> tuple[str, ...]:
    if models.llmapi:
        return read_dialect(models.entry, options).losses()
    if models.vllm:
        return read_vllm(models.entry, models.guide_field).losses()
    if models.plain:
        return tuple(_plain_losses(models.entry))
    if path == "tokens" or (models.pipeline is None and not models.bls):
        one = () if is_decoupled(models) else (_one_response(models),)
        return (*one, *_relative(models.engine or models.entry, models, options))
    return tuple(_losses(models, read_text_path(models, options), options))


def takes_stops(models: Models) -> bool:
    """Whether the engine step of an ensemble takes requests that end another."""
    return models.engine is not None and "stop" in models.engine.inputs and not models.bls


_CURES = "set path: tokens, or accumulate_tokens in a BLS model, or text_streaming: whole for one event at the end"


def _relative(called: ModelView, models: Models, options: EngineOptions) -> Iterator[str]:
    if read_abilities(called, models.engine, options).normalizes:
        yield (
            "log-probs are rejected with temperature 0, top_k, top_p or min_p: normalize_log_probs of "
            f"{(models.engine or called).name!r} is not false, so that they would be relative to the remaining "
            "candidates"
        )


def _losses(models: Models, path: TextPath, options: EngineOptions) -> Iterator[str]:
    name = models.entry.name
    if not path.decoupled:
        yield _one_response(models)
    yield from _not_passed_on(models)
    if path.token_ids:
        yield from _relative(models.entry, models, options)
        return
    damage = f"{name!r} decodes each response by itself, which breaks characters of several tokens and drops spaces"
    if path.streams == "rejected":
        yield f"streamed answers are rejected: {damage}; {_CURES}"
    elif path.streams == "damaged":
        yield f"streamed answers are damaged (text_streaming: lossy): {damage}"
    elif path.streams == "whole" and path.decoupled:
        yield f"a streamed answer is one event at the end (text_streaming: whole): {damage}"
    if path.whole:
        yield "a stop string cuts an answer that is not streamed, but does not end its generation in the engine"
    elif path.streams == "damaged":
        yield "answers that are not streamed are damaged as well because they would start with the prompt"
    if not path.counts:
        yield f"{name!r} does not report token counts: usage.completion_tokens and finish_reason are estimated"
    elif path.estimates:
        yield "usage.completion_tokens of an answer that a stop string cuts is estimated"
    yield "log-probs are rejected because text does not show its tokens"


def _plain_losses(model: ModelView) -> Iterator[str]:
    name = model.name
    if not model.decoupled:
        yield f"a streamed answer is one event at the end: {name!r} is not decoupled"
    if "max_tokens" not in model.inputs:
        yield (
            f"{name!r} does not support max_tokens: requests with a limit are rejected, and the model decides "
            "where its answers end"
        )
    if "num_output_tokens" not in model.outputs:
        yield (
            f"{name!r} does not report token counts: usage.completion_tokens is counted by tokenizing the text again"
        )
    if "finish_reason" not in model.outputs:
        yield f"{name!r} does not report finish reasons: finish_reason is estimated"
    if "num_input_tokens" not in model.outputs:
        yield (
            f"{name!r} does not report prompt token counts: usage.prompt_tokens is counted by the gateway's tokenizer"
        )
    yield "log-probs are rejected because text does not show its tokens"
    yield "it is unknown whether the model stops cancelled requests"
    if hints.parameter(model, "add_special_tokens") is None:
        yield (
            f"the gateway assumes that {name!r} adds BOS to prompts; if not, set its parameter add_special_tokens "
            "to false"
        )


def _not_passed_on(models: Models) -> Iterator[str]:
    if models.bls and not is_own_bls(models.entry):
        yield "the BLS model does not forward cancellation: a cancelled request continues to its end in the engine"
        yield "the BLS model does not forward engine errors during an answer, which then ends by timeout"
    elif not models.bls and not takes_stops(models):
        yield (
            "the ensemble's engine does not support stop requests: a cancelled request continues to its end in the "
            "engine"
        )


def _one_response(models: Models) -> str:
    entry = models.entry if models.bls else models.engine
    deciding = {model.name for model in (entry, models.engine) if model is not None and not model.decoupled}
    who = " and ".join(map(repr, sorted(deciding))) + (" is" if len(deciding) == 1 else " are")
    return f"a streamed answer is one event at the end: {who} not decoupled"


def check_required(model: ModelView, spec: ModelSpec, filled: frozenset[str]) -> None:
    """Reject a model that requires inputs that are not sent, or takes inputs in another form.

    Args:
        model: the model that is called.
        spec: its tensors by the contract.
        filled: names of the tensors that every request holds.

    Raises:
        DiscoveryError: with the names.
    """
    known = {name for tensor in spec.inputs if tensor.name in filled for name in tensor.names}
    unknown = sorted(model.required - known)
    if unknown:
        raise DiscoveryError(
            f"model {model.name!r} requires inputs that the gateway does not send: {', '.join(unknown)}; "
            "declare them with optional: true"
        )
    encoder = RequestEncoder(model, spec)
    for name in sorted(filled):
        if encoder.declares(name) and (misfit := encoder.misfit(name)):
            raise DiscoveryError(f"model {model.name!r} cannot be called: {misfit}")
