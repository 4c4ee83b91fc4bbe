"""What a gateway says of a repository: what it refuses, and what it serves with losses, by the rules it serves by."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from gateway.triton.discovery import describe
from gateway.triton.model_view import ModelView
from gateway.triton.pipeline import assemble, called_models, kind_of
from gateway.triton.servable import DiscoveryError
from gateway_ops.checking.findings import Finding, Severity, sentence
from gateway_ops.checking.repository.llmapi import completed
from gateway_ops.checking.repository.models import LLMAPI, Models, stock_model

_ENTRIES = ("ensemble", "tensorrt_llm", "tensorrt_llm_bls", LLMAPI)
_NAME = re.compile(r"'([^']+)'")
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a gateway would say of one model that it is pointed at.

    Attributes:
        refusal: why it is not served; None when it is.
        losses: what is lost of its answers although nothing in its configuration must be so.
        inherent: what is lost however it is configured.
    """

    refusal: str | None
    losses: tuple[str, ...] = ()
    inherent: tuple[str, ...] = ()


def check_serving(models: Models) -> Iterator[Finding]:
    """Find what a gateway refuses or serves with losses, whichever of the models it is pointed at.

    Args:
        models: all models of the repository whose configurations parse; who calls another is not judged.
    """
    views = {name: completed(model, replace(ModelView.of(model.config), name=name)) for name, model in models.items()}
    for name, model in models.items():
        view = views[name]
        if kind_of(view) is None and stock_model(model) not in _ENTRIES:
            continue
        involved = {name, *called_models(view)}
        if involved - views.keys() or any(models[each].unfilled for each in involved & views.keys()):
            continue  # which has a finding of its own
        verdict = judge(views, name)
        if verdict.refusal is not None:
            yield _finding(Severity.ERROR, models, name, verdict.refusal)
        for severity, said in ((Severity.WARNING, verdict.losses), (Severity.INFO, verdict.inherent)):
            for loss in said:
                yield _finding(severity, models, name, loss)


def judge(views: Mapping[str, ModelView], name: str) -> Verdict:
    """Judge a model as a gateway does that is pointed at it.

    Args:
        views: the repository's models by name, all those among them that the model calls.
        name: the model.
    """
    models = assemble(views[name], {each: views[each] for each in called_models(views[name])})
    try:
        features = describe(models, "auto")
        if models.pipeline is not None:  # an ensemble need not be on the text path
            return Verdict(None, features.losses)
        best = describe(assemble(_best(views[name]), {each: _best(views[each]) for each in models.names[1:]}), "auto")
    except DiscoveryError as error:
        return Verdict(str(error))
    inherent = tuple(loss for loss in features.losses if loss in best.losses)
    return Verdict(None, tuple(loss for loss in features.losses if loss not in inherent), inherent)


def _best(view: ModelView) -> ModelView:
    """The same model, configured as well for streaming as it can be."""
    wanted = {"accumulate_tokens": "true"} if "accumulate_tokens" in view.parameters else {}
    return replace(view, decoupled=True, parameters={**view.parameters, **wanted})


def _finding(severity: Severity, models: Models, entry: str, said: str) -> Finding:
    """Place a sentence at the model that it names and, in there, at the first thing that it names."""
    named = [name for name in _NAME.findall(said) if name in models]
    model = models[named[-1] if named else entry]
    words = [word for word in _WORD.findall(said) if word not in models]
    line = next((line for word in words if (line := model.line_of(f'"{word}"'))), None)
    if line is None and "decoupled" in words:
        line = model.line_of("model_transaction_policy")
    return Finding(severity, f"{model.file}:{line or 1}", sentence(said))
