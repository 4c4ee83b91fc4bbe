"""The shape of a model, from a deployment or a readable ``config.json``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gateway.settings.deployment_settings import ModelSource

_SHAPE = {
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "layers": "num_hidden_layers",
    "vocab_size": "vocab_size",
    "max_positions": "max_position_embeddings",
}


def shape_of(model: ModelSource) -> dict[str, int]:
    """The known heads, layers, vocabulary and positions."""
    config = text_config_of(model)
    shape = {}
    for key, name in _SHAPE.items():
        value = getattr(model, key) or config.get(name)
        if isinstance(value, int) and value > 0:
            shape[key] = value
    return shape


def text_config_of(model: ModelSource) -> dict[str, Any]:
    """The ``config.json`` of the model, or its text part; empty where it cannot be read here."""
    config = config_of(model)
    nested = config.get("text_config")
    return nested if isinstance(nested, dict) else config


def config_of(model: ModelSource) -> dict[str, Any]:
    """The ``config.json`` of the model; empty where it cannot be read here."""
    return _read(model, "config.json")


def quantization_of(model: ModelSource) -> dict[str, Any]:
    """The quantization settings of the model's files; empty without any, or where they cannot be read."""
    found = config_of(model).get("quantization_config")
    found = found or _read(model, "hf_quant_config.json").get("quantization")  # older ones of NVIDIA's Model Optimizer
    return found if isinstance(found, dict) else {}


def _read(model: ModelSource, name: str) -> dict[str, Any]:
    """An object of a file in the model's folder; empty where it cannot be read here."""
    for folder in (model.folder, model.source):
        try:
            found: Any = json.loads((Path(folder or "").expanduser() / name).read_bytes()) if folder else None
        except (OSError, ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            return found
    return {}
