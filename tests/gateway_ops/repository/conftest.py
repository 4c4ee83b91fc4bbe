"""The examples, and deployments written in a few lines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.settings.deployment_settings import DeploymentSettings
from gateway.settings.settings_validation import validate_deployments
from gateway.settings.yaml_file import read_document

EXAMPLES = Path(__file__).parents[3] / "examples" / "deployments"
SMALL: dict[str, Any] = {
    "name": "small",
    "engine": "tensorrt",
    "model": {"source": "/models/small", "family": "llama", "heads": 32, "kv_heads": 8, "layers": 32},
    "engine_dir": "/engines/small",
}


def load(file: Path) -> tuple[DeploymentSettings, ...]:
    """The deployments of a file without mistakes."""
    deployments, problems = validate_deployments(read_document(file))
    assert problems == []
    return deployments


@pytest.fixture
def deployments_of(tmp_path: Path) -> Callable[..., tuple[DeploymentSettings, ...]]:
    """Deployments from changes of a small one: a mapping for each, merged by section."""

    def make(*changes: dict[str, Any]) -> tuple[DeploymentSettings, ...]:
        made = [_merged(SMALL, change) for change in changes]
        file = tmp_path / "gateway.yaml"
        file.write_text(yaml.safe_dump({"deployments": made}))
        return load(file)

    return make


def _merged(base: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in change.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict) and isinstance(merged.get(key), dict):
            merged[key] = _merged(merged[key], value)
        else:
            merged[key] = value
    return merged
