"""Finds models of a repository that a gateway rejects or serves with losses."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from gateway.generation.engine import EngineFeatures
from gateway.settings import EnginePath
from gateway.triton.dialects.dialect import DiscoveryError
from gateway.triton.dialects.registry import DIALECTS, kind_of
from gateway.triton.discovery import describe
from gateway.triton.model_view import ModelView
from gateway.triton.pipeline import assemble, called_models
from gateway_ops.check.findings import Finding, Severity, loss_findings, sentence
from gateway_ops.check.repository.llmapi import completed
from gateway_ops.check.repository.models import LLMAPI, Models, stock_model
from gateway_ops.repository.model_folders import ModelFolder

_ENTRIES = ("ensemble", "tensorrt_llm", "tensorrt_llm_bls", LLMAPI)
_NAME = re.compile(r"'([^']+)'")
_WORD = re.compile(r"\w+")
_TEXT_PATH = "where the engine step fails its probe, or with path: ensemble"


def check_serving(models: Models) -> Iterator[Finding]:
    """Find what a gateway rejects or serves with losses, for each model that it could serve.

    Args:
        models: all models of the repository whose configurations parse; a model is not checked
            where a model that it calls is missing.
    """
    views = gateway_views(models)
    for name in entries(models, views):
        if any(models[each].unfilled for each in (name, *called_models(views[name]))):
            continue  # which has a finding of its own
        try:
            losses = describe_entry(views, name).losses
        except DiscoveryError as error:
            yield _finding(Severity.ERROR, models, name, str(error))
            continue
        for found in loss_findings("", losses):
            yield _finding(found.severity, models, name, found.what, found.fix)
        if views[name].steps and not losses:
            yield from _text_path(models, views, name)


def gateway_views(models: Models) -> dict[str, ModelView]:
    """The models as a gateway sees them in a Triton that has loaded them."""
    return {name: _completed(model, replace(ModelView.of(model.config), name=name)) for name, model in models.items()}


def _completed(model: ModelFolder, view: ModelView) -> ModelView:
    for dialect in DIALECTS:
        view = dialect.completed(view)
    return completed(model, view)


def entries(models: Models, views: Mapping[str, ModelView]) -> list[str]:
    """The models that a gateway could serve, all of whose called models exist."""
    return [
        name
        for name, view in views.items()
        if (kind_of(view) or stock_model(models[name]) in _ENTRIES) and views.keys() >= set(called_models(view))
    ]


def describe_entry(views: Mapping[str, ModelView], name: str, path: EnginePath = "auto") -> EngineFeatures:
    """Describe a model as a gateway serves it.

    Args:
        views: the repository's models by name, including every model that ``name`` calls.
        name: the model.
        path: the gateway's setting ``path``.

    Raises:
        DiscoveryError: the model is not served.
    """
    entry = views[name]
    return describe(assemble(entry, {each: views[each] for each in called_models(entry)}), path)


def _text_path(models: Models, views: Mapping[str, ModelView], name: str) -> Iterator[Finding]:
    """Say what the way around a stock ensemble's engine step would cost."""
    try:
        said = tuple(describe_entry(views, name, "ensemble").losses)[:1]
    except DiscoveryError as error:
        said = (str(error),)
    for words in said:
        yield _finding(Severity.INFO, models, name, f"{_TEXT_PATH}, {words}")


def _finding(severity: Severity, models: Models, entry: str, said: str, fix: str = "") -> Finding:
    """Place a sentence at the model that it names and, in there, at the first thing that it names."""
    model = models[next((name for name in _NAME.findall(said) if name in models), entry)]
    words = [word for word in _WORD.findall(said) if word not in models]
    line = next((line for word in words if (line := model.line_of(f'"{word}"'))), None)
    return Finding(
        severity, f"{model.file}:{line or model.line_of('model_transaction_policy') or 1}", sentence(said), fix
    )
