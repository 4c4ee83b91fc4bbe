"""Rules of what can be served: the one source for discovery, which reads a running Triton, and for ``gateway check``.

A model that breaks a rule breaks it until its repository or the gateway's settings change.
"""

from __future__ import annotations

from typing import Literal

from gateway.contract import ModelSpec
from gateway.triton import hints
from gateway.triton.engines.request_encoder import RequestEncoder
from gateway.triton.model_view import ModelView
from gateway.triton.pipeline import Models, is_llmapi, is_own_bls

EnginePath = Literal["auto", "tokens", "ensemble"]

_ALWAYS = {"end_id", "pad_id", "exclude_input_in_output", "seed"}
ALWAYS_TOKENS = frozenset(_ALWAYS | {"input_ids", "input_lengths", "request_output_len", "streaming"})
ALWAYS_ENSEMBLE = frozenset(_ALWAYS | {"text_input", "max_tokens", "stream"})


SERVED_KINDS = (
    "an ensemble or a BLS model of TensorRT-LLM (text_input and max_tokens), its engine model (input_ids, "
    "input_lengths and request_output_len), or the model of its LLM API (text_input and sampling_param_*)"
)
"""What a gateway can be pointed at, for sentences on what was expected."""
_MOST_TENSORS = 6


class DiscoveryError(ValueError):
    """What is configured cannot be served; the message says why, in one sentence."""


def check(models: Models, path: EnginePath) -> None:
    """Refuse what cannot be served.

    Raises:
        DiscoveryError: with the reason.
    """
    entry, engine = models.entry, models.engine
    name = entry.name
    if models.bls:
        _check_bls(entry, path)
        _check_engine_name(entry)
    elif models.pipeline is None:
        if is_llmapi(entry):
            raise DiscoveryError(f"model {name!r} takes LLM API tensors (sampling_param_*), which is not supported yet")
        if engine is None:
            raise DiscoveryError(_of_no_kind(entry))
        if path == "ensemble":
            raise DiscoveryError(f"path: ensemble is configured, but model {name!r} is an engine model")
    elif path == "tokens" and engine is None:
        raise DiscoveryError(f"path: tokens is configured, but not exactly one step of {name!r} takes token ids")
    for model in (engine, entry if models.bls else None):
        if model is not None and not model.decoupled:
            raise DiscoveryError(
                f"model {model.name!r} is not decoupled, so it cannot stream; "
                "set model_transaction_policy { decoupled: true } in its config.pbtxt"
            )


def _of_no_kind(model: ModelView) -> str:
    if not model.inputs and not model.outputs:
        return (
            f"model {model.name!r} declares no tensors: expected are those of {SERVED_KINDS}; a model that completes "
            "its configuration as it is loaded needs tritonserver without --disable-auto-complete-config"
        )
    return (
        f"model {model.name!r} has neither the tensors of an ensemble nor those of an engine of TensorRT-LLM: it takes "
        f"{_some(model.inputs)} and answers {_some(model.outputs)}; expected is {SERVED_KINDS}"
    )


def _some(names: frozenset[str]) -> str:
    shown = ", ".join(sorted(names)[:_MOST_TENSORS])
    return f"{shown}, ..." if len(names) > _MOST_TENSORS else shown or "nothing"


def _check_bls(model: ModelView, path: EnginePath) -> None:
    if path == "tokens":
        raise DiscoveryError(f"path: tokens is configured, but {model.name!r} is a BLS model, which takes text")
    accumulates = (hints.parameter(model, "accumulate_tokens") or "false").lower() == "true"
    if accumulates and "output_ids" not in model.outputs:
        raise DiscoveryError(
            f"the BLS model {model.name!r} streams the text so far, not what is new; set accumulate_tokens to false"
        )


def _check_engine_name(model: ModelView) -> None:
    name = model.parameters.get("tensorrt_llm_model_name", "")
    # Upstream's model takes an unfilled name for the default since 0.13, which brought this parameter.
    reads_defaults = is_own_bls(model) or "multimodal_encoders_name" in model.parameters
    if name.startswith("${") and not reads_defaults:
        raise DiscoveryError(
            f"the BLS model {model.name!r} calls an engine model of the name {name!r}, which nobody filled in; "
            "set tensorrt_llm_model_name to the engine model's name"
        )


def check_required(model: ModelView, spec: ModelSpec, filled: frozenset[str]) -> None:
    """Refuse a model that requires more than is sent, or takes it in another form.

    Args:
        model: the model that is called.
        spec: its tensors by the contract.
        filled: names of those that every request holds.

    Raises:
        DiscoveryError: with the names.
    """
    known = {name for tensor in spec.inputs if tensor.name in filled for name in tensor.names}
    unknown = sorted(model.required - known)
    if unknown:
        raise DiscoveryError(
            f"model {model.name!r} requires inputs that the gateway does not send: {', '.join(unknown)}"
        )
    encoder = RequestEncoder(model, spec)
    for name in sorted(filled):
        if encoder.declares(name) and (misfit := encoder.misfit(name)):
            raise DiscoveryError(f"model {model.name!r} cannot be called: {misfit}")
