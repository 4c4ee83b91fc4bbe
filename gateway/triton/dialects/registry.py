"""The list of dialects, and the choice for a model."""

from __future__ import annotations

from typing import Any, Final

from gateway.settings import EnginePath, Task
from gateway.text.bad_request import first_of
from gateway.triton.dialects.dialect import Dialect, DiscoveryError
from gateway.triton.dialects.encoder import EncoderDialect
from gateway.triton.dialects.ensemble import EnsembleDialect
from gateway.triton.dialects.llmapi import LlmApiDialect
from gateway.triton.dialects.plain_text import PlainTextDialect
from gateway.triton.dialects.tokens import TokensDialect
from gateway.triton.dialects.vllm import VllmDialect
from gateway.triton.model_view import ModelView
from gateway.triton.pipeline import Models

DIALECTS: Final[tuple[Dialect[Any], ...]] = (
    EnsembleDialect(),
    TokensDialect(),
    LlmApiDialect(),
    VllmDialect(),
    PlainTextDialect(),
)
"""The first that recognizes a model that generates serves it."""

ENCODERS: Final = EncoderDialect()
"""Serves every model whose task is another one."""

SERVED_KINDS = ", ".join(each.served for each in DIALECTS[:-1]) + f", or {DIALECTS[-1].served}"
"""Kinds of models that a gateway can be pointed at, for sentences on what was expected."""
_MOST_TENSORS = 6
_OF_TOKENS = frozenset({"output_ids", "sequence_length"})


def find_dialect(model: ModelView) -> Dialect[Any] | None:
    """Find the dialect of a configured model; None for an unsupported kind."""
    return next((each for each in DIALECTS if each.recognizes(model)), None)


def kind_of(model: ModelView) -> str | None:
    """Name the kind of a model that can be configured, in a word or two; None for an unsupported kind."""
    found = find_dialect(model)
    return None if found is None else found.kind_of(model)


def check(models: Models, path: EnginePath, task: Task = "generate") -> Dialect[Any]:
    """Check the rules of a configured model's dialect, and return the dialect.

    Args:
        models: the configured models.
        path: ``path`` of the settings.
        task: ``task`` of the settings.

    Raises:
        DiscoveryError: with the reason why the models cannot be served.
    """
    if task != "generate":
        ENCODERS.check(models, path)
        return ENCODERS
    found = find_dialect(models.entry)
    asked = next((each for each in DIALECTS if each.path == path), None)
    if asked is not None and asked.lacking and (found is None or not found.lacking):
        raise DiscoveryError(f"path: {path} is configured, but {asked.lacking.format(name=repr(models.entry.name))}")
    if found is None:
        raise DiscoveryError(_of_no_kind(models.entry))
    found.check(models, path)
    return found


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
    if ENCODERS.recognizes(model) and not model.outputs & _OF_TOKENS:
        return (
            f"model {model.name!r} returns numbers, no text: set its task to embed, rerank or classify, for example "
            "task: embed"
        )
    return (
        f"model {model.name!r} is of an unsupported kind: its inputs are {_some(model.inputs)} and its outputs "
        f"{_some(model.outputs)}; supported are {SERVED_KINDS}"
    )


def _some(names: frozenset[str]) -> str:
    first, more = first_of(sorted(names), _MOST_TENSORS)
    return f"{', '.join(first)} {more}".strip() or "nothing"
