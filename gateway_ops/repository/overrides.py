"""Overrides ``--set key:value``: template variables as of ``fill_template.py``, or key paths of a deployment."""

from __future__ import annotations

import copy
import difflib
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from gateway.settings.deployment_settings import DeploymentSettings
from gateway.settings.settings_validation import all_keys
from gateway_ops.repository.template_variables import BY_NAME, BY_SPELLING


class OverrideError(ValueError):
    """An unusable override; the message names it, the reason and what to write instead."""


def apply_overrides(data: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Apply overrides to a settings file's data.

    Each one is ``[deployment/]key:value``, or several of them separated by commas. Commas and colons within a value
    are escaped by a backslash. Without a deployment's name it goes to every deployment. An empty value unsets the key.

    Args:
        data: the file's data, which is not changed.
        overrides: overrides in order; later ones win.

    Raises:
        OverrideError: an override is malformed, unknown, or rejected.
    """
    changed = copy.deepcopy(dict(data))
    deployments = changed.get("deployments")
    entries = [entry for entry in deployments if isinstance(entry, dict)] if isinstance(deployments, list) else []
    for override in overrides:
        for item in _split(override, ","):
            parts = _split(item, ":")
            if len(parts) != 2 or not parts[0]:
                raise OverrideError(f"{item!r} is not key:value; escape commas and colons of a value with a backslash.")
            name, _, key = parts[0].strip().rpartition("/")
            chosen = [entry for entry in entries if not name or entry.get("name") == name]
            if not chosen:
                raise OverrideError(f"{item!r}: deployment {name!r} does not exist.")
            path = _path(key)
            for entry in chosen:
                _assign(entry, path, _value(key, parts[1].strip()) if parts[1].strip() else None)
    return changed


def _path(key: str) -> list[str]:
    variable = BY_SPELLING.get(key)
    if variable is not None:
        if variable.rejected:
            raise OverrideError(f"{key!r} cannot be set: {variable.rejected}. Leave it out.")
        return variable.key.split(".")
    paths = all_keys(DeploymentSettings)
    if key not in paths:
        near = difflib.get_close_matches(key, [*BY_NAME, *paths], n=1, cutoff=0.6)
        hint = f"Did you mean {near[0]!r}?" if near else "docs/reference/configuration.md lists all of them."
        raise OverrideError(f"{key!r} is neither a variable of the templates nor a key of a deployment. {hint}")
    return key.split(".")


def _value(key: str, text: str) -> Any:
    """Parse the text as a settings file would."""
    if key == "triton_backend":
        if text != "tensorrtllm":
            raise OverrideError(f"triton_backend:{text}: set engine to llmapi or reference for a Python engine.")
        return "tensorrt"
    if key.endswith(("data_type", "datatype")):
        return text.removeprefix("TYPE_")
    if key in ("gpu_device_ids", "triton.gpu_ids", "participant_ids", "triton.participant_ids"):
        return [group.split(",") for group in text.split(";")]
    if key in ("max_attention_window_size", "kv_cache.max_attention_window", "lora.modules"):
        return text.split(",")
    try:
        value = text if text.startswith("{") else yaml.safe_load(text)  # a tree of choices is not a mapping
    except yaml.YAMLError:
        return text
    quoted = isinstance(value, str) and text[0] in "'\""  # text that would be a number or a truth value otherwise
    return value if quoted or isinstance(value, bool | int | float) else text


def _assign(entry: dict[str, Any], path: Sequence[str], value: Any) -> None:
    for key in path[:-1]:
        inner = entry.get(key)
        if not isinstance(inner, dict):
            if value is None:
                return
            inner = entry[key] = {}
        entry = inner
    if value is None:
        entry.pop(path[-1], None)
    else:
        entry[path[-1]] = value


def _split(text: str, delimiter: str) -> list[str]:
    """Split at a delimiter that no backslash escapes."""
    parts, current, escaped = [], "", False
    for character in text:
        if escaped:
            # The backslash stays for the inner split, unless it was meant for this delimiter.
            current += character if character == delimiter else f"\\{character}"
            escaped = False
        elif character == "\\":
            escaped = True
        elif character == delimiter:
            parts.append(current)
            current = ""
        else:
            current += character
    parts.append(current + ("\\" if escaped else ""))
    return parts
