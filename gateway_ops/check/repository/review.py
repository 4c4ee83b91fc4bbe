"""All checks of a model repository, and those of each folder: name, backend and unfilled values."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from pathlib import Path

from gateway_ops.check.findings import Finding, Severity
from gateway_ops.check.repository.built import check_built
from gateway_ops.check.repository.chat import check_chat
from gateway_ops.check.repository.engines import check_engines, check_gpus
from gateway_ops.check.repository.llmapi import check_llmapi
from gateway_ops.check.repository.models import OTHER_BACKENDS, VLLM_BACKEND, stock_model
from gateway_ops.check.repository.parameters import check_parameters, check_tokenizers, check_values
from gateway_ops.check.repository.serving import check_serving
from gateway_ops.check.repository.tensors import check_tables
from gateway_ops.check.repository.triton_refusals import check_configuration
from gateway_ops.check.repository.version_folders import check_versions
from gateway_ops.check.repository.wiring import check_callers, check_ensemble
from gateway_ops.repository.model_folders import ModelFolder, Placeholder, read_repository
from gateway_ops.repository.template_variables import BY_NAME

_PARSE_ERROR = re.compile(r"^(\d+):(\d+) : (.*)$", re.DOTALL)
_KNOWN_BACKENDS = ("python", "tensorrtllm")
_OF_TRTLLM = frozenset({"QUERY", "TOKENS_BATCH", "input_ids", "text_input"})


def check_repository(folder: Path) -> list[Finding]:
    """Find faults and doubts in a model repository; nothing is loaded."""
    try:
        models = read_repository(folder)
    except OSError as error:
        where = str(error.filename or folder)
        return [Finding(Severity.ERROR, where, f"It cannot be read ({error.strerror}).")]
    if not any(model.file.is_file() for model in models.values()):
        fix = "Name the folder that contains preprocessing/, tensorrt_llm/, ensemble/ and the other models."
        return [Finding(Severity.ERROR, str(folder), "No folder in the repository has a config.pbtxt.", fix)]
    findings: list[Finding] = []
    for name, model in models.items():
        findings += _check_folder(name, model)
    whole = {name: model for name, model in models.items() if model.config is not None}
    unreadable = models.keys() - whole.keys()
    for model in whole.values():
        if model.config.ensemble_scheduling.step:
            findings += check_ensemble(model, whole, unreadable=unreadable)
    findings += check_tables(whole)
    findings += check_callers(whole, unreadable=unreadable)
    for review in (
        check_engines,
        check_built,
        check_gpus,
        check_values,
        check_parameters,
        check_tokenizers,
        check_llmapi,
        check_chat,
        check_serving,
    ):
        findings += review(whole)
    return _sorted(findings)


def _sorted(findings: list[Finding]) -> list[Finding]:
    def place(finding: Finding) -> tuple[str, int]:
        path, _, line = finding.where.rpartition(":")
        return (path, int(line)) if line.isdigit() else (finding.where, 0)

    return sorted(dict.fromkeys(findings), key=place)


def _check_folder(name: str, model: ModelFolder) -> Iterator[Finding]:
    if not model.file.is_file():
        fix = "Render it with `gateway repo`, or move the folder out of the repository."
        yield Finding(Severity.ERROR, str(model.path), "The folder has no config.pbtxt.", fix)
        return
    yield from _check_placeholders(model)
    if model.config is None:
        match = _PARSE_ERROR.match(model.error)
        where = f"{model.file}:{match[1]}" if match else str(model.file)
        what = f"It is not a model configuration: {match[3] if match else model.error}"
        yield Finding(Severity.ERROR, where, what.rstrip(".") + ".", "Render it again, or correct the line.")
        return
    config = model.config
    if config.name and config.name != name:
        where = f"{model.file}:{model.line_of('name:') or 1}"
        what = f"The name is {config.name!r}, but the folder is {name!r}; Triton rejects the model."
        yield Finding(Severity.ERROR, where, what, f"Name both {name!r}.")
    yield from check_versions(model)
    yield from check_configuration(model)
    yield from _check_backend(model)


def _check_backend(model: ModelFolder) -> Iterator[Finding]:
    config, backend = model.config, model.config.backend
    fix = 'Set backend: "tensorrtllm" for the engine, "python" for the other models'
    if config.platform or backend in (*_KNOWN_BACKENDS, VLLM_BACKEND) or _is_unfilled(backend):
        return
    if not backend:
        what = "It has no backend and no platform."
        yield Finding(Severity.ERROR, f"{model.file}:1", what, f"{fix}; the ensemble has a platform.")
        return
    where, library = f"{model.file}:{model.line_of('backend:') or 1}", f"libtriton_{backend}.so"
    brought = any(
        (folder / library).is_file() for folder in (model.path, *(model.path / one for one in model.versions))
    )
    meant = difflib.get_close_matches(backend, _KNOWN_BACKENDS, n=1, cutoff=0.75)
    is_own = bool(_OF_TRTLLM & {tensor.name for tensor in config.input})
    if not brought and backend not in OTHER_BACKENDS and (meant or is_own):
        what = f"These models cannot run on the backend {backend!r}."
        yield Finding(Severity.ERROR, where, what, f"Did you mean {meant[0]!r}?" if meant else f"{fix}.")
    else:
        what = f"These models cannot run on the backend {backend!r}."
        yield Finding(Severity.WARNING, where, what, f"{fix}.")


def _is_unfilled(value: str) -> bool:
    return value.startswith("${")


def _check_placeholders(model: ModelFolder) -> Iterator[Finding]:
    native = model.config is None or model.config.backend == "tensorrtllm"
    optional = []
    for found in model.placeholders:
        is_own = found.name.isupper() and found.quoted
        if is_own and not native:
            continue  # this project's Python models read these from the environment
        where = f"{model.file}:{found.line}"
        if is_own:
            what = f"${{{found.name}}} is not replaced: the C++ backend does not read environment variables."
            yield Finding(Severity.ERROR, where, what, "Write the value.")
        elif not found.quoted or _is_mandatory(found, model):
            consequence = "." if found.quoted else ", so the file does not parse."
            what = f"${{{found.name}}} is an unfilled template variable{consequence}"
            yield Finding(Severity.ERROR, where, what, _how_to_fill(found))
        else:
            optional.append(found)
    if optional:
        names = ", ".join(found.name for found in optional)
        what = f"Optional template variables are unfilled, so they have their defaults: {names}."
        fix = "Fill in the values that you need, and remove the other parameters."
        yield Finding(Severity.INFO, f"{model.file}:{optional[0].line}", what, fix)


def _is_mandatory(found: Placeholder, model: ModelFolder) -> bool:
    variable = BY_NAME.get(found.name)
    if variable is None or not variable.required:
        return False
    # Preprocessing has engine_dir as well, for images, and the engine has tokenizer_dir, for guided decoding.
    stock = stock_model(model) if model.config is not None else None
    if found.name == "engine_dir":
        return stock in ("tensorrt_llm", None)
    return found.name != "tokenizer_dir" or stock in ("preprocessing", "postprocessing")


def _how_to_fill(found: Placeholder) -> str:
    variable = BY_NAME.get(found.name)
    if variable is None or not variable.key:
        return "Write the value."
    value = "VALUE" if variable.required else variable.default
    return f"Fill it with fill_template.py {found.name}:{value}, or render the repository from `{variable.key}`."
