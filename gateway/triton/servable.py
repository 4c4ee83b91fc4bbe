"""Rules of what can be served: the one source for discovery, which reads a running Triton, and for ``gateway check``.

A model that breaks a rule breaks it until its repository or the gateway's settings change.
"""

from __future__ import annotations

from typing import Literal

from gateway.contract import ModelSpec
from gateway.triton import hints
from gateway.triton.engines.request_encoder import RequestEncoder
from gateway.triton.model_view import ModelView
from gateway.triton.pipeline import Models

EnginePath = Literal["auto", "tokens", "ensemble", "llmapi"]

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


class DiscoveryError(ValueError):
    """What is configured cannot be served; the message says why, in one sentence."""


def check(models: Models, path: EnginePath) -> None:
    """Refuse what cannot be served.

    Raises:
        DiscoveryError: with the reason.
    """
    entry, engine = models.entry, models.engine
    name = entry.name
    if models.llmapi:
        _check_llmapi(entry, path)
    elif path == "llmapi":
        raise DiscoveryError(f"path: llmapi is configured, but model {name!r} has no inputs sampling_param_*")
    elif models.bls:
        _check_bls(entry, path)
    elif models.pipeline is None:
        if engine is None:
            raise DiscoveryError(
                f"model {name!r} has neither the tensors of an ensemble nor those of an engine of TensorRT-LLM"
            )
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


def _check_bls(model: ModelView, path: EnginePath) -> None:
    if path == "tokens":
        raise DiscoveryError(f"path: tokens is configured, but {model.name!r} is a BLS model, which takes text")
    accumulates = (hints.parameter(model, "accumulate_tokens") or "false").lower() == "true"
    if accumulates and "output_ids" not in model.outputs:
        raise DiscoveryError(
            f"the BLS model {model.name!r} streams the text so far, not what is new; set accumulate_tokens to false"
        )


def _check_llmapi(model: ModelView, path: EnginePath) -> None:
    if path not in ("auto", "llmapi"):
        raise DiscoveryError(f"path: {path} is configured, but {model.name!r} is a model of the LLM API (path: llmapi)")
    lacks = sorted((ALWAYS_LLMAPI - model.inputs) | ({"text_output", "finish_reason"} - model.outputs))
    if lacks:
        raise DiscoveryError(f"model {model.name!r} of the LLM API lacks tensors of the stock one: {', '.join(lacks)}")
    if model.batched:
        raise DiscoveryError(
            f"model {model.name!r} of the LLM API has a max_batch_size above 0, which its code does not take; set it to 0"
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
