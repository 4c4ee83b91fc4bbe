"""The files that a model's settings name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import jinja2

from gateway.config import ConfigError, ModelSettings
from gateway.generation.engine import EngineFeatures
from gateway.prompt.environment import make_environment
from gateway.serving.loading import load_parts, needs_discovery
from gateway.tokens import unreadable
from gateway_ops.checking.findings import Finding, Severity

Keys = tuple[str | int, ...]
Located = tuple[Keys, Finding]


def check_files(settings: ModelSettings) -> Iterator[Located]:
    """Find what is wrong with the tokenizer's folder and the template, whether they fit or not.

    Args:
        settings: of the model.

    Yields:
        Key path within the model, and finding.
    """
    folder = settings.tokenizer
    if folder is not None and not folder.is_dir():
        what = f"The folder {folder} does not exist." if not folder.exists() else f"{folder} is no folder."
        yield ("tokenizer",), Finding(Severity.ERROR, "", what, "Name the model's folder, which has tokenizer.json.")
    elif folder is not None and (trouble := unreadable(folder)):
        yield ("tokenizer",), Finding(Severity.ERROR, "", trouble)
    if settings.template is not None:
        yield from _check_template(settings.template)


def _check_template(path: Path) -> Iterator[Located]:
    try:
        make_environment().parse(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        yield ("template",), Finding(Severity.ERROR, "", f"The template cannot be read ({error}).")
    except jinja2.TemplateSyntaxError as error:
        what = f"The template does not parse: {error.message}."
        yield ("template",), Finding(Severity.ERROR, f"{path}:{error.lineno}", what)


def check_parts(settings: ModelSettings, features: EngineFeatures | None) -> Iterator[Located]:
    """Load tokenizer and template as the gateway does at its start, and compare what they say with the settings.

    Args:
        settings: of the model, without errors so far.
        features: what was discovered; None while Triton is away.

    Yields:
        Key path within the model, and finding.
    """
    if features is None and needs_discovery(settings):
        missing = [key for key in ("tokenizer", "max_seq_len") if getattr(settings, key) is None]
        what = f"{' and '.join(missing)} must come from Triton's own configuration, which could not be looked at."
        yield (), Finding(Severity.WARNING, "", what)
        return
    try:
        parts = load_parts(settings, features, "")
    except ConfigError as error:
        key, _, what = str(error).removeprefix(".").partition(": ")
        yield tuple(key.partition(" ")[0].split(".")), Finding(Severity.ERROR, "", what)
        return
    if not parts.end_ids:
        what = f"{parts.tokenizer_source} names no eos_token: answers end at max_tokens or a stop string only."
        fix = "Add eos_token_id to its generation_config.json."
        yield ("tokenizer",), Finding(Severity.WARNING, "", what, fix)
    for bound, who in (
        (features.max_seq_len if features else None, "the engine has"),
        (parts.tokenizer.max_position_embeddings, "config.json allows"),
    ):
        if settings.max_seq_len is not None and bound is not None and settings.max_seq_len > bound:
            what = f"max_seq_len is {settings.max_seq_len}, but {who} {bound}."
            yield ("max_seq_len",), Finding(Severity.WARNING, "", what)
    most = settings.defaults.max_tokens
    if most is not None and most >= parts.max_seq_len:
        what = f"defaults.max_tokens is {most}, but the context has {parts.max_seq_len} tokens, prompt included."
        yield ("defaults", "max_tokens"), Finding(Severity.WARNING, "", what)
    if settings.defaults.generation_config and not (parts.tokenizer_source / "generation_config.json").is_file():
        what = f"{parts.tokenizer_source} has no generation_config.json to take defaults from."
        yield ("defaults", "generation_config"), Finding(Severity.WARNING, "", what)
