"""Recognises stock models in a repository, and makes findings at lines of a configuration."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gateway.text.contract import ModelSpec
from gateway_ops.check.findings import Finding, Severity
from gateway_ops.repository.model_folders import ModelFolder
from gateway_ops.repository.stock_models import MODELS

Models = Mapping[str, ModelFolder]

FALSE_WORDS = ("false", "0", "no", "f", "n", "off")
LLMAPI = "llmapi"
"""The name by which `stock_model` tells upstream's LLM API model from the other ``tensorrt_llm``."""

VLLM_BACKEND = "vllm"
"""That of models that a gateway calls as they are: it completes their configuration as they are loaded."""

# Triton's other backends, each a repository of github.com/triton-inference-server; none of these models run on them.
OTHER_BACKENDS = (
    *("dali", "fil", "identity", "onnxruntime", "openvino", "pytorch", "repeat", "square", "tensorflow", "tensorrt"),
    VLLM_BACKEND,
)
_NATIVE = "tensorrtllm"
_PYTHON_MODELS = ("tensorrt_llm", "tensorrt_llm_bls", "preprocessing", "postprocessing")
# Parameters that one stock model has, and no other.
_SIGNS = {
    "gpt_model_type": "tensorrt_llm",
    "tensorrt_llm_model_name": "tensorrt_llm_bls",
    "accumulate_tokens": "tensorrt_llm_bls",
    "add_special_tokens": "preprocessing",
    "skip_special_tokens": "postprocessing",
}
_LEAST = 3  # tensors in common, fewer of which mean nothing


def stock_model(model: ModelFolder) -> str | None:
    """Recognise a stock model by its backend or most of its tensors' names, else by a parameter and a tensor.

    Returns:
        A name of `gateway_ops.repository.stock_models.MODELS`, or `LLMAPI`; None for a model of another kind.
    """
    config = model.config
    if is_native(model):
        return "tensorrt_llm"
    names = {(kind, tensor.name) for kind in ("input", "output") for tensor in getattr(config, kind)}
    if any(name.startswith("sampling_param_") for _, name in names):
        return LLMAPI
    if config.platform == "ensemble" or config.ensemble_scheduling.step:
        return "ensemble" if 2 * len(names & _known("ensemble")) >= max(len(names), 2 * _LEAST) else None
    if config.platform or config.backend in OTHER_BACKENDS:
        return None
    shared = {name: len(names & _known(name)) for name in _PYTHON_MODELS}
    best = max(shared, key=lambda name: shared[name])
    if shared[best] >= _LEAST and 2 * shared[best] >= len(names):
        return best
    signs = {_SIGNS[name] for name in config.parameters if name in _SIGNS}
    return next((name for name in _PYTHON_MODELS if name in signs and shared[name]), None)


def _known(name: str) -> set[tuple[str, str]]:
    """Kind and name of every tensor that a stock model has in any version."""
    spec: ModelSpec = MODELS[name]
    tensors = (("input", spec.inputs), ("output", spec.outputs))
    return {(kind, alias) for kind, specs in tensors for tensor in specs for alias in tensor.names}


def of_kind(models: Models, *stock: str) -> dict[str, ModelFolder]:
    """The models by name that were made from one of the ``stock`` models."""
    return {name: model for name, model in models.items() if stock_model(model) in stock}


def engines(models: Models) -> dict[str, ModelFolder]:
    """The models that take and return token ids."""
    return of_kind(models, "tensorrt_llm")


def is_native(model: ModelFolder) -> bool:
    """Tell whether a model runs on the C++ backend."""
    return str(model.config.backend) == _NATIVE


def text_steps(models: Models) -> dict[str, ModelFolder]:
    """The models that load a tokenizer: preprocessing and postprocessing."""
    return of_kind(models, "preprocessing", "postprocessing")


def filled(model: ModelFolder, name: str) -> str:
    """The value of a parameter; empty when it is missing or a placeholder."""
    value = model.config.parameters[name].string_value if name in model.config.parameters else ""
    return "" if value.startswith("${") else str(value).strip()


def is_count(text: str) -> bool:
    """Tell whether a text is a whole number of 64 bits."""
    return re.fullmatch(r"\s*[0-9]{1,19}\s*", text) is not None


def instance_count(model: ModelFolder) -> int:
    """The number of instances, over all GPUs."""
    return sum(group.count or 1 for group in model.config.instance_group)


def tensors(model: ModelFolder, kind: str) -> dict[str, Any]:
    """The declared inputs or outputs by name.

    Args:
        model: a model of the repository.
        kind: ``input`` or ``output``.
    """
    return {tensor.name: tensor for tensor in getattr(model.config, kind)}


def at(model: ModelFolder, text: str) -> str:
    """Write the line of a parameter, else of a text, as findings do."""
    return f"{model.file}:{model.line_of(f'key: {chr(34)}{text}{chr(34)}') or model.line_of(text) or 1}"


def at_tensor(model: ModelFolder, name: str) -> str:
    """Write the line of a tensor or of another quoted name, as findings do."""
    return f"{model.file}:{model.line_of(f'{chr(34)}{name}{chr(34)}') or 1}"


def error(model: ModelFolder, text: str, what: str, fix: str) -> Finding:
    """Make an error at the line of a parameter or text."""
    return Finding(Severity.ERROR, at(model, text), what, fix)


def warning(model: ModelFolder, text: str, what: str, fix: str) -> Finding:
    """Make a warning at the line of a parameter or text."""
    return Finding(Severity.WARNING, at(model, text), what, fix)
