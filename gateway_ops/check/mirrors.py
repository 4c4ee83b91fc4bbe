"""Findings on the mirrors of models: another tokenizer, a mirror of a mirror, an unreadable report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gateway.generation.engine import EngineFeatures
from gateway.serving.comparison.facts import PROBE, TURNS, TargetFacts, compare_facts, facts_of, warnings_of
from gateway.serving.loading import ModelParts, load_parts, needs_discovery
from gateway.settings import ConfigError, ModelSettings, ServerSettings
from gateway.settings.yaml_file import Keys
from gateway.text.prompt import TemplateError
from gateway_ops.check.findings import Finding, Severity

Served = tuple[int, ModelSettings, EngineFeatures | None]
"""Its place in the settings, the model, and what was discovered of it."""


def check_mirrors(served: Sequence[Served], server: ServerSettings) -> Iterator[tuple[Keys, Finding]]:
    """Compare models with their mirrors, except models that cannot be loaded.

    Args:
        served: all models, without mistakes in their settings.
        server: settings with the address of the report.
    """
    by_name = {model.name: (model, features) for _, model, features in served}
    for index, model, features in served:
        mirror = model.mirror
        if mirror is None or mirror.to not in by_name:
            continue
        second, of_second = by_name[mirror.to]
        place: Keys = ("models", index, "mirror", "to")
        if second.mirror is not None:
            what = f"{model.name!r} is mirrored to {second.name!r}, which is mirrored to {second.mirror.to!r}"
            if second.mirror.to == model.name:
                what = f"{model.name!r} and {second.name!r} are mirrored to each other"
            yield (
                place,
                Finding(
                    Severity.WARNING,
                    "",
                    f"{what}: only requests of clients are mirrored; mirrored requests are not mirrored again.",
                ),
            )
        facts = compare_facts(_facts(model, features), _facts(second, of_second))
        for sentence in warnings_of(facts):
            yield place, Finding(Severity.WARNING, "", f"A, {model.name!r}, and its mirror B: {_lower(sentence)}")
        if server.internal_port is None:
            what = (
                "The report of a mirror is served on the internal port, which is not configured; the metrics have "
                "totals only."
            )
            yield place, Finding(Severity.INFO, "", what, "Set server.internal_port.")


def _facts(model: ModelSettings, features: EngineFeatures | None) -> TargetFacts:
    if features is None and needs_discovery(model):
        return facts_of({}, None, None)
    try:
        parts = load_parts(model, features, "")
    except ConfigError:
        return facts_of({}, None, None)
    entry = {"max_model_len": parts.max_seq_len, "gateway": {"family": parts.family.name}}
    return facts_of(entry, parts.tokenizer.encode(PROBE), _turns(parts))


def _turns(parts: ModelParts) -> list[int] | None:
    try:
        return list(parts.prompts.build(TURNS).ids)
    except TemplateError:
        return None


def _lower(sentence: str) -> str:
    return sentence[0].lower() + sentence[1:]
