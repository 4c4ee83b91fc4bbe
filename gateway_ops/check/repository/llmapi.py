"""Checks upstream's LLM API models, which have settings in a file of their own (wire contract 1.7)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from gateway.triton.dialects.llmapi import LlmApiDialect, broken_by_adapters
from gateway.triton.discovery import describe
from gateway.triton.model_view import ModelView
from gateway.triton.pipeline import assemble
from gateway_ops.check.findings import Finding, Severity, sentence
from gateway_ops.check.repository.models import LLMAPI, Models, at, error, of_kind, tensors
from gateway_ops.check.repository.version_folders import loaded_versions
from gateway_ops.repository.model_folders import ModelFolder

_FILE = "model.yaml"
_HELPERS = re.compile(r"^(from|import)\s+helpers\b", re.MULTILINE)
_COPY = "Copy it from all_models/llmapi/tensorrt_llm/1"


def check_llmapi(models: Models) -> Iterator[Finding]:
    """Check that the files of upstream's LLM API models exist and agree with their configuration."""
    for model in of_kind(models, LLMAPI).values():
        yield from _check_policy(model)
        for version in loaded_versions(model):
            yield from _check_version(model, model.path / str(version))


def completed(model: ModelFolder, view: ModelView) -> ModelView:
    """Complete a model's configuration by ``model.yaml``, as Triton does."""
    return replace(view, decoupled=view.decoupled or _is_decoupled(model)) if LlmApiDialect().recognizes(view) else view


def _is_decoupled(model: ModelFolder) -> bool:
    """Whether the file of the newest version that is loaded says so."""
    for version in reversed(loaded_versions(model)):
        settings = _read(model.path / str(version) / _FILE)
        said = settings.get("triton_config") if isinstance(settings, dict) else None
        return isinstance(said, dict) and bool(said.get("decoupled"))
    return False


def _read(file: Path) -> Any:
    try:
        return yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return None


def _check_policy(model: ModelFolder) -> Iterator[Finding]:
    """Check for what Triton takes from ``model.yaml`` unless an option forbids that, as upstream's launcher does."""
    view = ModelView.of(model.config)
    if view.decoupled or "model_transaction_policy" in model.unfilled or not _is_decoupled(model):
        return
    streams = describe(assemble(completed(model, view), {}), "auto").streams == "pieces"
    what = (
        f"decoupled is set in {_FILE} only: with --disable-auto-complete-config, which launch_triton_server.py sets, "
        "Triton ignores it, and a streamed answer arrives as one event."
    )
    severity = Severity.WARNING if streams else Severity.INFO  # others respond in one piece anyway
    yield Finding(severity, at(model, "decoupled"), what, "Write model_transaction_policy { decoupled: true } as well.")


def _check_version(model: ModelFolder, folder: Path) -> Iterator[Finding]:
    entry = folder / (model.config.default_model_filename or "model.py")
    source = entry.read_text(encoding="utf-8", errors="replace") if entry.is_file() else ""
    if _HELPERS.search(source) and not any((folder / name).exists() for name in ("helpers.py", "helpers")):
        what = f"{folder.name}/ has no helpers.py, which {entry.name} imports."
        yield Finding(Severity.ERROR, str(model.path), what, f"{_COPY}.")
    if _FILE not in source:
        return  # it is not upstream's model, which reads that file
    file = folder / _FILE
    if not file.is_file():
        what = f"{folder.name}/ has no {_FILE}, which {entry.name} reads unless LLM_CONFIG_PATH names another file."
        yield Finding(Severity.ERROR, str(model.path), what, f"{_COPY}, and set model and triton_config in it.")
        return
    try:
        settings = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as problem:
        mark = getattr(problem, "problem_mark", None)
        where = f"{file}:{mark.line + 1 if mark else 1}"
        what = f"It is not valid YAML: {getattr(problem, 'problem', None) or 'it cannot be read'}."
        yield Finding(Severity.ERROR, where, what, "Correct the line.")
        return
    yield from _check_settings(model, file, settings)
    if isinstance(settings, dict) and settings.get("lora_config") and "lora_id" not in tensors(model, "input"):
        what = sentence(broken_by_adapters(model.path.name))
        yield Finding(Severity.ERROR, _line(file, "lora_config"), what)


def _check_settings(model: ModelFolder, file: Path, settings: Any) -> Iterator[Finding]:
    said = settings.get("triton_config") if isinstance(settings, dict) else None
    if not isinstance(said, dict) or "decoupled" not in said:
        what = "triton_config.decoupled is missing, which model.py reads when it is loaded."
        yield Finding(Severity.ERROR, f"{file}:1", what, "Write triton_config: {max_batch_size: 0, decoupled: True}.")
        return
    if not said["decoupled"] and model.config.model_transaction_policy.decoupled:
        what = "decoupled is False, but true in config.pbtxt: model.py uses this value, and rejects streaming."
        yield Finding(Severity.ERROR, _line(file, "decoupled"), what, "Write decoupled: True.")
    elif said["decoupled"] and said["decoupled"] is not True:
        what = f"decoupled is {said['decoupled']!r}, a non-empty text that model.py reads as true."
        yield Finding(Severity.WARNING, _line(file, "decoupled"), what, "Write decoupled: True.")
    if said.get("max_batch_size"):
        what = f"max_batch_size is {said['max_batch_size']}, but this model does not support batches."
        yield Finding(Severity.ERROR, _line(file, "max_batch_size"), what, "Write 0.")
    if model.config.max_batch_size and "max_batch_size" not in model.unfilled:
        what = f"max_batch_size is {model.config.max_batch_size}, but this model does not support batches."
        yield error(model, "max_batch_size:", what, "Write 0, or remove it.")


def _line(file: Path, key: str) -> str:
    lines = file.read_text(encoding="utf-8").splitlines()
    number = next((n for n, line in enumerate(lines, 1) if line.strip().startswith(f"{key}:")), 1)
    return f"{file}:{number}"
