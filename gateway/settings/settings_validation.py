"""Converts plain values to settings, or to a list of problems."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from gateway.settings.auth_settings import NAME_FORM, KeySettings, KeysFile
from gateway.settings.deployment_settings import (
    NAME_PATTERN,
    REFERENCE_PATTERN,
    DeploymentSettings,
)
from gateway.settings.gateway_settings import NO_MODEL, Deployments, Settings, taken_names
from gateway.settings.model_settings import template_path
from gateway.settings.yaml_file import Keys, SettingsDocument, SettingsProblem, dotted

_LOG = logging.getLogger(__name__)

RENAMED_VALUES: dict[str, dict[str, str]] = {
    "max_tokens_policy": {"refuse": "reject"},
    "text_streaming": {"refuse": "reject"},
    "structured_output_without_guidance": {"refuse": "reject"},
}
"""Former values of a served model's settings and what they are called now."""

_SHAPES = {
    "tuple_type": "must be a list",
    "model_type": "must be a mapping",
    "dict_type": "must be a mapping",
    "string_type": "must be a string; put it in quotes",
    "path_type": "must be a path",
    "int_type": "must be an integer",
    "int_parsing": "must be an integer",
    "int_from_float": "must be an integer",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "missing": "is required",
    "url_missing": "is required",
}


_PATTERNS = {
    NAME_PATTERN: "must consist of letters, digits, _, - and ., and begin with a letter, a digit or _",
    f"^{NAME_FORM}$": (
        "must consist of at most 64 letters, digits, _, -, @ and ., and begin with a letter, a digit or _"
    ),
    REFERENCE_PATTERN: "must be a variable such as ${NAME}",
}
_GROUPED = {
    "participant_ids": "Write [[1]]: the ranks of each instance.",
    "gpu_ids": "Write [[0]]: the GPUs of each instance.",
}
_NAME_FIXES = {
    "models": "Each name and each alias must be unique.",
    "deployments": "Each deployment must have a unique name.",
}
_ALTERNATIVES = ("constrained-", "literal[", "bool")  # how pydantic's names for the members of a union begin


def _rename_values(data: dict[str, Any]) -> None:
    """Replace former values of ``RENAMED_VALUES`` in place, with a warning for each."""
    models = data.get("models")
    for index, model in enumerate(models if isinstance(models, list) else ()):
        for key, values in RENAMED_VALUES.items() if isinstance(model, dict) else ():
            if isinstance(former := model.get(key), str) and former in values:
                model[key] = values[former]
                about = {"event": "setting_renamed"}
                _LOG.warning("models[%d].%s: write %s instead of %s", index, key, model[key], former, extra=about)


def validate(
    document: SettingsDocument, sources: Mapping[str, str] | None = None, folder: Path | None = None
) -> tuple[Settings | None, list[SettingsProblem]]:
    """Convert a document to settings.

    Args:
        document: the file's content, with the environment already laid over its data; former values are replaced in it.
        sources: the variable of each dotted key path that came from one, and so has no line.
        folder: the base of relative paths in the file.

    Returns:
        The settings, None when there are problems; and all problems in the order of the file.
    """
    sources = sources or {}
    problems = list(document.problems)
    _rename_values(document.data)
    data = document.data
    if not data.get("models"):
        problems.append(SettingsProblem(f"{NO_MODEL}.", line=document.line(("models",))))
        data = {**data, "models": []}
    settings = None
    if folder is not None:
        data = _with_absolute_files(data, folder, sources)
    try:
        settings = Settings.model_validate(
            data if folder is None or "models[0].name" in sources else with_absolute_paths(data, folder)
        )
    except ValidationError as error:
        # Pydantic checks names only when all else is right, and stops at the first: they are checked anew.
        found = [item for item in error.errors() if item["type"] not in ("name_taken", "no_model")]
        problems += [_problem(item, document, sources) for item in _own_mistakes(found)]
        problems += [
            *_taken("models", data["models"], document),
            *_taken("deployments", data.get("deployments"), document),
        ]
    problems.sort(key=lambda problem: problem.line or 0)
    return (None if problems else settings), problems


def validate_deployments(document: SettingsDocument) -> tuple[tuple[DeploymentSettings, ...], list[SettingsProblem]]:
    """Convert the section ``deployments`` of a document to settings, without its other sections.

    Returns:
        The deployments, none when there are problems; and all problems in the order of the file.
    """
    problems = [item for item in document.problems if item.what.startswith("deployments")]
    data = document.data.get("deployments")
    if not data:
        problems.append(
            SettingsProblem(
                "deployments: the section is empty.", "Add a deployment; examples/deployments has examples.", 1
            )
        )
        return (), problems
    found: tuple[DeploymentSettings, ...] = ()
    try:
        found = Deployments.model_validate({"deployments": data}).deployments
    except ValidationError as error:
        problems += [_problem(item, document, {}) for item in _own_mistakes(error.errors())]
    problems += _taken("deployments", data, document)
    problems.sort(key=lambda problem: problem.line or 0)
    return (() if problems else found), problems


def validate_keys(document: SettingsDocument) -> tuple[tuple[KeySettings, ...], list[SettingsProblem]]:
    """Convert a key file to settings.

    Returns:
        The keys, none when there are problems; and all problems in the order of the file.
    """
    problems = list(document.problems)
    keys: tuple[KeySettings, ...] = ()
    try:
        keys = KeysFile.model_validate(document.data).keys
    except ValidationError as error:
        problems += [_problem(item, document, {}, KeysFile) for item in _own_mistakes(error.errors())]
    problems.sort(key=lambda problem: problem.line or 0)
    return (() if problems else keys), problems


_FILES = (
    ("state", "path"), ("state", "keys_file"), ("auth", "keys_file"), ("auth", "jwt", "jwks_file"),
    *(("server", "tls", name) for name in ("certificate", "key", "client_ca")),
)  # fmt: skip


def _with_absolute_files(data: dict[str, Any], folder: Path, sources: Mapping[str, str]) -> dict[str, Any]:
    """Make the paths of the gateway's own files relative to the folder of the file, but those that variables have."""
    for keys in _FILES:
        if ".".join(keys) not in sources:
            data = _with_absolute_file(data, keys, folder)
    return data


def _with_absolute_file(data: dict[str, Any], keys: Sequence[str], folder: Path) -> dict[str, Any]:
    if len(keys) == 1:
        return {**data, **_absolute(data, keys, folder)}
    inner = data.get(keys[0])
    return {**data, keys[0]: _with_absolute_file(inner, keys[1:], folder)} if isinstance(inner, dict) else data


def with_absolute_paths(data: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Make relative paths of the models absolute, from the folder of the file."""
    if not isinstance(data["models"], list):
        return data
    return {**data, "models": [_with_absolute_paths(model, folder) for model in data["models"]]}


def _with_absolute_paths(model: Any, folder: Path) -> Any:
    if not isinstance(model, dict):
        return model
    changed = {**model, **_absolute(model, ("tokenizer",), folder)}
    if isinstance(template := model.get("template"), str):
        changed["template"] = str(template_path(Path(template).expanduser(), folder))
    for section in ("lora", "prompt_tables"):
        if isinstance(inner := model.get(section), dict):
            keys = ("folder",) if section == "lora" else tuple(inner)
            changed[section] = {**inner, **_absolute(inner, keys, folder)}
    triton = model.get("triton")
    if isinstance(triton, dict) and isinstance(tls := triton.get("tls"), dict):
        absolute = _absolute(tls, ("ca", "certificate", "key"), folder)
        changed["triton"] = {**triton, "tls": {**tls, **absolute}}
    return changed


def _absolute(section: dict[str, Any], keys: Sequence[str], folder: Path) -> dict[str, str]:
    """Return the keys that hold a path, each with the path made absolute."""
    return {key: str(folder / Path(section[key]).expanduser()) for key in keys if isinstance(section.get(key), str)}


def _taken(section: str, data: Any, document: SettingsDocument) -> list[SettingsProblem]:
    entries = [item if isinstance(item, dict) else {} for item in (data if isinstance(data, list) else ())]
    aliases = [entry.get("aliases") if section == "models" else None for entry in entries]
    named = [
        (entry.get("name"), given if isinstance(given, list) else ())
        for entry, given in zip(entries, aliases, strict=True)
    ]
    return [
        SettingsProblem(f"{dotted(keys)}: {sentence}.", _NAME_FIXES[section], document.line(keys))
        for keys, sentence in taken_names(section, named)
    ]


def _own_mistakes(errors: Sequence[Any]) -> list[Any]:
    """Drop errors that only follow from others: a list that lacks its broken items, a union's second member."""
    kept: dict[tuple[Keys, str], Any] = {}
    for error in errors:
        keys: Keys = tuple(error["loc"])
        inner = any(len(other["loc"]) > len(keys) and tuple(other["loc"][: len(keys)]) == keys for other in errors)
        if error["type"] == "too_short" and inner:
            continue
        is_member = len(keys) > 1 and str(keys[-1]).startswith(_ALTERNATIVES)
        owner = keys[:-1] if is_member else keys
        kept.setdefault((owner, "" if is_member else error["type"]), {**error, "loc": owner})
    return list(kept.values())


def _problem(
    error: Any, document: SettingsDocument, sources: Mapping[str, str], root: type[BaseModel] = Settings
) -> SettingsProblem:
    """Word one error of pydantic, with the variable's name where the environment set the value."""
    keys: Keys = tuple(error["loc"])
    if error["type"] == "split":  # found over all settings
        keys = ("splits", error["ctx"]["name"])
        return SettingsProblem(f"{dotted(keys)}: {error['ctx']['problem']}.", "", document.line(keys))
    if error["type"] == "mirror":  # found over all settings, too
        keys = ("models", error["ctx"]["index"], "mirror", error["ctx"]["key"])
        return SettingsProblem(f"{dotted(keys)}: {error['ctx']['problem']}.", "", document.line(keys))
    if error["type"] == "url_missing":
        keys = (*keys, "url")
    path = dotted(keys)
    line = None if path in sources or (keys[0] == "models" and "models[0].name" in sources) else document.line(keys)
    where = f"{path} ({sources[path]})" if path in sources else path
    if error["type"] == "extra_forbidden":
        return SettingsProblem(f"{where}: unknown key.", _suggestion(keys, root), line)
    pattern = error.get("ctx", {}).get("pattern", "")
    reason = _SHAPES.get(error["type"]) or _PATTERNS.get(pattern) or error["msg"].removeprefix("Value error, ")
    fix = _GROUPED.get(str(keys[-2]), "") if error["type"] == "tuple_type" and len(keys) > 1 else ""
    return SettingsProblem(f"{where}: {reason[0].lower() + reason[1:]}.", fix, line)


def _suggestion(keys: Keys, root: type[BaseModel]) -> str:
    """Suggest the key that an unknown one was probably meant to be."""
    name = str(keys[-1])
    known = _known_keys(root, keys[:-1])
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    if near:
        return f"Did you mean {near[0]!r}?"
    elsewhere = [path for path in all_keys(root) if path.rpartition(".")[2] == name]
    if keys[0] == "deployments":  # a key of models means something else there
        elsewhere = [path for path in elsewhere if path.startswith("deployments[].")]
    if elsewhere:
        return f"Did you mean {elsewhere[0]!r}?"
    return f"Known keys here: {', '.join(known)}."


def _known_keys(section: type[BaseModel], keys: Keys) -> list[str]:
    for key in keys:
        if isinstance(key, str) and key in section.model_fields:  # not a name in a mapping of sections
            section = _section_of(section, key) or section
    return list(section.model_fields)


def _section_of(section: type[BaseModel], key: str) -> type[BaseModel] | None:
    """Return the section under a key, or of the items of a list under it; None for a plain value."""
    annotation = section.model_fields[key].annotation
    for candidate in (annotation, *get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None


def all_keys(section: type[BaseModel], prefix: str = "") -> list[str]:
    """List every key path of a section, such as ``models[].triton.url``."""
    paths = []
    for key, field in section.model_fields.items():
        inner = _section_of(section, key)
        origin = get_origin(field.annotation)
        path = f"{prefix}{key}{'[]' if inner is not None and origin is tuple else ''}"
        paths += all_keys(inner, f"{path}.") if inner and origin is not Mapping else [path]
    return paths
