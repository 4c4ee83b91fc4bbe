"""The version folders of a model, and the files that each must have."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import get_args

from gateway.config.deployment import EngineKind
from gateway_ops.checking.findings import Finding, Severity
from gateway_ops.checking.repository_models import at, filled
from gateway_ops.checking.repository_python import check_python
from gateway_ops.repository.reading import ModelFolder

_NEEDS_FILE = {"python": "model.py"}
_CANONICAL = re.compile(r"0|[1-9][0-9]*", re.ASCII)
# Triton reads a folder's name as C's strtoll does: blanks, a sign, digits, and whatever comes behind them.
_READ_AS = re.compile(r"\s*([+-]?[0-9]+)", re.ASCII)
_MOST = 2**63 - 1
_NO_VERSIONS = frozenset({"__pycache__", "warmup", "initial_state", "configs"})


def check_versions(model: ModelFolder) -> Iterator[Finding]:
    """Check that Triton finds a version to load, and what its backend runs in it.

    Args:
        model: whose configuration parses.
    """
    numbers = version_numbers(model)
    beyond = [version for version in model.versions if _CANONICAL.fullmatch(version) and int(version) > _MOST]
    if beyond:
        what = f"The folder {beyond[0]}/ is a number beyond 64 bits: Triton ends at its start."
        yield Finding(Severity.ERROR, str(model.path), what, "Name version folders 1, 2, 3.")
    elif not numbers:
        yield Finding(Severity.ERROR, str(model.path), "There is no version folder such as 1/.", _how_to_make(model))
        return
    for version in model.versions:
        if version not in _NO_VERSIONS and not _CANONICAL.fullmatch(version):
            yield _name_finding(model, version, numbers)
    loaded, missing = _loaded_versions(model, numbers)
    if missing:
        severity = Severity.WARNING if loaded else Severity.ERROR
        there = ", ".join(f"{number}/" for number in numbers)
        what = f"version_policy asks for version {missing[0]}, and there is only {there}."
        where = at(model, "specific" if model.line_of("specific") else "version_policy")
        yield Finding(severity, where, what, "Remove version_policy, or name a version that is there.")
    yield from _check_files(model, loaded)


def version_numbers(model: ModelFolder) -> list[int]:
    """Versions that there are, by their folders' names, in order."""
    numbers = [int(version) for version in model.versions if _CANONICAL.fullmatch(version)]
    return sorted(number for number in numbers if number <= _MOST)


def loaded_versions(model: ModelFolder) -> list[int]:
    """Versions that Triton loads by the model's policy."""
    return _loaded_versions(model, version_numbers(model))[0]


def _how_to_make(model: ModelFolder) -> str:
    meant = [(version, int(match[1])) for version in model.versions if (match := _READ_AS.match(version))]
    if meant and meant[0][1] > 0:
        return f"Rename {meant[0][0]}/ to {meant[0][1]}/: Triton wants the mere number, without zeros in front."
    return f"Make it: mkdir {model.path / '1'} (git does not keep empty folders: put a .gitkeep into it)."


def _name_finding(model: ModelFolder, version: str, numbers: list[int]) -> Finding:
    """A folder that is no version, or not the one that it seems to be."""
    fix = "Name version folders by a number, or remove it."
    read = _READ_AS.match(version)
    if read is None or version.startswith("0"):
        zeros = " but a number with zeros in front" if read is not None else ""
        what = f"The folder {version}/ is no version{zeros}: Triton passes it over."
        return Finding(Severity.WARNING, str(model.path), what, fix)
    number = int(read[1])
    what = f"The folder {version}/ is no version, but Triton takes it for {number}, and looks for that folder."
    severity = Severity.WARNING if number in numbers else Severity.ERROR
    return Finding(severity, str(model.path), what, fix)


def _loaded_versions(model: ModelFolder, there: list[int]) -> tuple[list[int], list[int]]:
    """Which versions Triton loads by the policy, and which it asks for in vain (ModelVersionPolicy)."""
    policy = model.config.version_policy
    if policy.WhichOneof("policy_choice") == "specific":
        asked = sorted(policy.specific.versions)
        return [version for version in asked if version in there], [one for one in asked if one not in there]
    if policy.WhichOneof("policy_choice") == "all":
        return there, []
    return there[-(policy.latest.num_versions or 1) :], []


def _check_files(model: ModelFolder, loaded: list[int]) -> Iterator[Finding]:
    needed = _NEEDS_FILE.get(model.config.backend)
    if needed is None or model.config.ensemble_scheduling.step:
        return
    wanted = model.config.default_model_filename or needed
    for version in loaded:
        folder = model.path / str(version)
        if not (folder / wanted).is_file():
            what = f"{version}/ has no {wanted}, which the Python backend runs."
            yield Finding(Severity.ERROR, str(model.path), what, "Copy the Python files, or render it anew.")
            continue
        yield from check_python(folder, wanted)
        kind = filled(model, "engine")  # this project's engine model runs what its parameter says
        file, there = f"{kind}_adapter.py", {path.name for path in folder.rglob("*adapter.py")}
        own = there & {"base_adapter.py", "adapter.py"}  # the latter as `gateway repo build` once rendered it
        if kind in get_args(EngineKind) and own and file not in there:
            what = f"{version}/ has no {file}, which engine {kind} runs."
            yield Finding(Severity.ERROR, str(model.path), what, "Copy the Python files, or render it anew.")
