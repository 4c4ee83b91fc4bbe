"""Compares built engines of a repository with its models, where their files are on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from gateway_ops.check.findings import Finding, Severity
from gateway_ops.check.repository.models import Models, at, engines, filled, is_count, is_native
from gateway_ops.engines.gpus import this_machine
from gateway_ops.engines.machine import Machine
from gateway_ops.engines.verification import EngineRequirements, Mismatch, engine_mismatches
from gateway_ops.repository.model_folders import ModelFolder

_SIZES = ("max_seq_len", "max_beam_width")
_PAGED = ("enable_kv_cache_reuse", "enable_chunked_context")


def check_built(models: Models) -> Iterator[Finding]:
    """Compare each engine on this machine with the model that loads it, and with this machine's GPUs."""
    for model in engines(models).values():
        folder = Path(filled(model, "gpt_model_path"))
        if is_native(model) and folder.is_absolute() and (folder / "config.json").is_file():
            for found in engine_mismatches(folder, _wanted(model), here()):
                yield as_finding(found, at(model, "gpt_model_path"))


def here() -> Machine | None:
    """Describe this machine as the serving machine, if it has GPUs; else None."""
    gpus = this_machine()
    return Machine("", gpus) if gpus else None


def as_finding(mismatch: Mismatch, where: str) -> Finding:
    """Convert a difference of an engine to a finding."""
    severity = Severity.ERROR if mismatch.error else Severity.WARNING
    return Finding(severity, where, f"{mismatch.where}: {mismatch.what}", mismatch.fix)


def _wanted(model: ModelFolder) -> EngineRequirements:
    sizes = {name: int(filled(model, name)) for name in _SIZES if is_count(filled(model, name))}
    sizes["max_batch_size"] = model.config.max_batch_size
    groups = [group.split(",") for group in filled(model, "gpu_device_ids").split(";") if group]
    paged = tuple(name for name in _PAGED if filled(model, name).lower() == "true")
    return EngineRequirements(world=len(groups[0]) if groups else None, sizes=sizes, paged_context=paged)
