"""A review of a Triton model repository before it is deployed."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import get_args

from gateway.checking.findings import Finding, Severity
from gateway.checking.repository_chat import check_chat
from gateway.checking.repository_engine import check_engines, filled
from gateway.checking.repository_python import check_python
from gateway.checking.repository_steps import check_ensemble
from gateway.checking.repository_values import check_values
from gateway.config.deployment import EngineKind
from gateway.repository.reading import ModelFolder, Placeholder, read_repository
from gateway.repository.vocabulary import BY_NAME

_PARSE_ERROR = re.compile(r"^(\d+):(\d+) : (.*)$", re.DOTALL)
_NEEDS_FILE = {"python": "model.py"}
_KNOWN_BACKENDS = ("python", "tensorrtllm")
# Triton's other backends, each a repository of github.com/triton-inference-server; none of these models run on them.
_OTHER_BACKENDS = (
    *("dali", "fil", "identity", "onnxruntime", "openvino", "pytorch", "repeat", "square", "tensorflow", "tensorrt"),
    "vllm",
)
_OURS = frozenset({"QUERY", "TOKENS_BATCH", "input_ids", "text_input"})


def check_repository(folder: Path) -> list[Finding]:
    """Find what is wrong or doubtful in a model repository; nothing is loaded.

    Args:
        folder: with a folder for each model.
    """
    try:
        models = read_repository(folder)
    except OSError as error:
        where = str(error.filename or folder)
        return [Finding(Severity.ERROR, where, f"It cannot be read ({error.strerror}).")]
    if not any(model.file.is_file() for model in models.values()):
        fix = "Name the folder that holds preprocessing/, tensorrt_llm/, ensemble/ and the others."
        return [Finding(Severity.ERROR, str(folder), "No folder in it has a config.pbtxt.", fix)]
    findings: list[Finding] = []
    for name, model in models.items():
        findings += _check_folder(name, model)
    whole = {name: model for name, model in models.items() if model.config is not None}
    for model in whole.values():
        if model.config.ensemble_scheduling.step:
            findings += check_ensemble(model, whole, unreadable=models.keys() - whole.keys())
    findings += check_engines(whole, unreadable=models.keys() - whole.keys())
    findings += check_values(whole)
    findings += check_chat(whole)
    return _sorted(findings)


def _sorted(findings: list[Finding]) -> list[Finding]:
    def place(finding: Finding) -> tuple[str, int]:
        path, _, line = finding.where.rpartition(":")
        return (path, int(line)) if line.isdigit() else (finding.where, 0)

    return sorted(dict.fromkeys(findings), key=place)


def _check_folder(name: str, model: ModelFolder) -> Iterator[Finding]:
    if not model.file.is_file():
        fix = "Render it with `gateway repo build`, or move the folder out of the repository."
        yield Finding(Severity.ERROR, str(model.path), "The folder has no config.pbtxt.", fix)
        return
    yield from _check_placeholders(model)
    if model.config is None:
        match = _PARSE_ERROR.match(model.error)
        where = f"{model.file}:{match[1]}" if match else str(model.file)
        what = f"It is no model configuration: {match[3] if match else model.error}"
        yield Finding(Severity.ERROR, where, what.rstrip(".") + ".", "Render it anew, or mend the line.")
        return
    config = model.config
    if config.name and config.name != name:
        where = f"{model.file}:{model.line_of('name:') or 1}"
        what = f"The name is {config.name!r}, but the folder is {name!r}; Triton refuses to load it."
        yield Finding(Severity.ERROR, where, what, f"Name both {name!r}.")
    yield from _check_versions(model)
    yield from _check_tensors(model)
    if config.max_batch_size < 0:
        what = f"max_batch_size is {config.max_batch_size}; Triton refuses to load it."
        yield Finding(Severity.ERROR, f"{model.file}:{model.line_of('max_batch_size:') or 1}", what, "Write 1 or more.")
    yield from _check_backend(model)


def _check_backend(model: ModelFolder) -> Iterator[Finding]:
    config, backend = model.config, model.config.backend
    fix = 'Set backend: "tensorrtllm" for the engine, "python" for the other models'
    if config.platform or backend in _KNOWN_BACKENDS or _is_unfilled(backend):
        return
    if not backend:
        what = "It names neither a backend nor a platform."
        yield Finding(Severity.ERROR, f"{model.file}:1", what, f"{fix}; the ensemble has a platform.")
        return
    where, library = f"{model.file}:{model.line_of('backend:') or 1}", f"libtriton_{backend}.so"
    brought = any(
        (folder / library).is_file() for folder in (model.path, *(model.path / one for one in model.versions))
    )
    meant = difflib.get_close_matches(backend, _KNOWN_BACKENDS, n=1, cutoff=0.75)
    ours = bool(_OURS & {tensor.name for tensor in config.input})
    if not brought and backend not in _OTHER_BACKENDS and (meant or ours):
        what = f"There is no backend {backend!r} that these models run on."
        yield Finding(Severity.ERROR, where, what, f"Did you mean {meant[0]!r}?" if meant else f"{fix}.")
    else:
        what = f"The backend {backend!r} is none that these models run on."
        yield Finding(Severity.WARNING, where, what, f"{fix}.")


def _is_unfilled(value: str) -> bool:
    return value.startswith("${")


def _check_placeholders(model: ModelFolder) -> Iterator[Finding]:
    native = model.config is None or model.config.backend == "tensorrtllm"
    optional = []
    for found in model.placeholders:
        ours = found.name.isupper() and found.quoted
        if ours and not native:
            continue  # this project's Python models read these from the environment
        where = f"{model.file}:{found.line}"
        if ours:
            what = f"${{{found.name}}} stays as it is: the C++ backend reads nothing from the environment."
            yield Finding(Severity.ERROR, where, what, "Write the value.")
        elif not found.quoted or _is_mandatory(found, model):
            consequence = "." if found.quoted else ", so the file does not parse."
            what = f"${{{found.name}}} is not filled in{consequence}"
            yield Finding(Severity.ERROR, where, what, _how_to_fill(found))
        else:
            optional.append(found)
    if optional:
        names = ", ".join(found.name for found in optional)
        what = f"Optional values are not filled in, which leaves them at their defaults: {names}."
        fix = "Fill in those that matter, and remove the other parameters."
        yield Finding(Severity.WARNING, f"{model.file}:{optional[0].line}", what, fix)


def _is_mandatory(found: Placeholder, model: ModelFolder) -> bool:
    variable = BY_NAME.get(found.name)
    if variable is None or not variable.mandatory:
        return False
    # The templates of other models have these two as well, for images and for guided decoding.
    is_text_step = model.config is not None and model.config.backend == "python"
    return {"engine_dir": not is_text_step, "tokenizer_dir": is_text_step}.get(found.name, True)


def _how_to_fill(found: Placeholder) -> str:
    variable = BY_NAME.get(found.name)
    if variable is None or not variable.key:
        return "Write the value."
    value = "VALUE" if variable.mandatory else variable.default
    return f"Fill it with fill_template.py {found.name}:{value}, or render the repository from `{variable.key}`."


def _check_versions(model: ModelFolder) -> Iterator[Finding]:
    numbers = {int(version): version for version in model.versions if version.isdigit() and int(version) > 0}
    if not numbers:
        fix = f"Make it: mkdir {model.path / '1'} (git does not keep empty folders: put a .gitkeep into it)."
        yield Finding(Severity.ERROR, str(model.path), "There is no version folder such as 1/.", fix)
        return
    for version in model.versions:
        if not version.isdigit() and version != "__pycache__":
            what = f"The folder {version}/ is no version: Triton passes it over."
            yield Finding(Severity.WARNING, str(model.path), what, "Name version folders by a number, or remove it.")
    loaded, missing = _loaded_versions(model, list(numbers))
    if missing:
        severity = Severity.WARNING if loaded else Severity.ERROR
        there = ", ".join(f"{number}/" for number in sorted(numbers))
        what = f"version_policy asks for version {missing[0]}, and there is only {there}."
        where = f"{model.file}:{model.line_of('specific') or model.line_of('version_policy') or 1}"
        yield Finding(severity, where, what, "Remove version_policy, or name a version that is there.")
    needed = _NEEDS_FILE.get(model.config.backend)
    wanted = model.config.default_model_filename or needed
    for version in [numbers[number] for number in loaded] if needed is not None else ():
        if (model.path / version / str(wanted)).is_file():
            yield from check_python(model.path / version, str(wanted))
            yield from _check_adapter(model, model.path / version)
        else:
            what = f"{version}/ has no {wanted}, which the Python backend runs."
            yield Finding(Severity.ERROR, str(model.path), what, "Copy the Python files, or render it anew.")


def _check_adapter(model: ModelFolder, folder: Path) -> Iterator[Finding]:
    """This project's engine model runs what its parameter says."""
    kind = filled(model, "engine")
    file = f"{kind}_adapter.py"
    if kind in get_args(EngineKind) and (folder / "adapter.py").is_file() and not (folder / file).is_file():
        what = f"{folder.name}/ has no {file}, which engine {kind} runs."
        yield Finding(Severity.ERROR, str(model.path), what, "Copy the Python files, or render it anew.")


def _loaded_versions(model: ModelFolder, there: list[int]) -> tuple[list[int], list[int]]:
    """Which versions Triton loads by the policy, and which it asks for in vain (ModelVersionPolicy)."""
    policy, ordered = model.config.version_policy, sorted(there)
    if policy.WhichOneof("policy_choice") == "specific":
        asked = sorted(policy.specific.versions)
        return [version for version in asked if version in there], [one for one in asked if one not in there]
    if policy.WhichOneof("policy_choice") == "all":
        return ordered, []
    return ordered[-(policy.latest.num_versions or 1) :], []


def _check_tensors(model: ModelFolder) -> Iterator[Finding]:
    for kind in ("input", "output"):
        seen: Mapping[str, bool] = {}
        for tensor in getattr(model.config, kind):
            where = f"{model.file}:{model.line_of(chr(34) + tensor.name + chr(34)) or 1}"
            if tensor.name in seen:
                # The stock ensemble lists kv_cache_alloc_total_blocks twice, which does no harm.
                severity = Severity.INFO if tensor.name == "kv_cache_alloc_total_blocks" else Severity.WARNING
                yield Finding(severity, where, f"The {kind} {tensor.name!r} is declared twice.", "Remove one.")
            seen = {**seen, tensor.name: True}
            if not tensor.dims:
                what = f"The {kind} {tensor.name!r} has no dims; Triton refuses the configuration."
                yield Finding(Severity.ERROR, where, what, "Write dims: [ 1 ], or -1 for a size that varies.")
