"""Values of a deployment by their key paths, such as ``kv_cache.reuse``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from gateway.settings.deployment_settings import DeploymentSettings

Found = tuple[str, str, str]
"""A contradiction: key path within the deployment, reason, fix."""
Shared = tuple[int, str, str, str]
"""A contradiction between deployments: index of one of them, and the same."""


def value_at(deployment: DeploymentSettings, key: str) -> Any:
    """Read the value at a key path; None where a section of the path is not given."""
    value: Any = deployment
    for part in key.split("."):
        value = getattr(value, part, None)
    return value


def is_given(deployment: DeploymentSettings, key: str) -> bool:
    """Tell whether the settings file sets a key."""
    section: Any = deployment
    for part in key.split("."):
        if not isinstance(section, BaseModel) or part not in section.model_fields_set:
            return False
        section = getattr(section, part)
    return section is not None


def given_keys(section: BaseModel, prefix: str = "") -> Iterator[str]:
    """Yield the key paths that the settings file sets; an empty section counts as one."""
    for name in type(section).model_fields:
        value = getattr(section, name)
        if name not in section.model_fields_set or value is None:
            continue
        inner = list(given_keys(value, f"{prefix}{name}.")) if isinstance(value, BaseModel) else []
        yield from inner or [f"{prefix}{name}"]
