"""From the contract's tables to the tensors of a configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from tritonclient.grpc import model_config_pb2

from gateway.config.deployment_settings import DeploymentSettings
from gateway.contract import ANY, ModelSpec, TensorSpec
from gateway_ops.repository.stock_models import (
    MODELS,
    TEXT_RAGGED,
    WIRED,
    engine_ragged,
    engine_scalar,
    of_version,
    parse_version,
)

_TEXT_FRONT = frozenset({"ensemble", "preprocessing"})


def spec_of(deployment: DeploymentSettings, model: str) -> ModelSpec:
    """A stock model's tensors for a deployment: of its version, with the extensions that its engine has.

    Args:
        deployment: decides version and engine.
        model: the stock name, such as ``ensemble``.
    """
    spec = of_version(MODELS[model], parse_version(deployment.trtllm))
    if deployment.engine != "tensorrt":
        return spec
    return replace(spec, inputs=_served(spec.inputs), outputs=_served(spec.outputs))


def _served(tensors: Iterable[TensorSpec]) -> tuple[TensorSpec, ...]:
    """Without what only this project's engines have; mere wiring stays."""
    return tuple(tensor for tensor in tensors if not tensor.extension or tensor.name in WIRED)


def add_tensors(config: Any, deployment: DeploymentSettings, model: str) -> None:
    """Declare a model's inputs and outputs.

    Args:
        config: the ModelConfig to add to.
        deployment: decides version, engine and the types that are its choice.
        model: the stock name.
    """
    spec = spec_of(deployment, model)
    native = deployment.engine == "tensorrt" and model == "tensorrt_llm"
    ragged = _raggedness(model, native=native)
    for tensor in spec.inputs:
        entry = config.input.add(name=tensor.name, data_type=_datatype(tensor, deployment), dims=tensor.dims)
        # Triton counts required inputs and leaves a request without one unanswered; the Python steps say what is wrong.
        entry.optional = tensor.optional or model in _TEXT_FRONT
        entry.allow_ragged_batch = ragged(tensor)
        if native and engine_scalar(tensor):
            entry.reshape.SetInParent()
    for tensor in spec.outputs:
        config.output.add(name=tensor.name, data_type=_datatype(tensor, deployment), dims=tensor.dims)


def _raggedness(model: str, *, native: bool) -> Callable[[TensorSpec], bool]:
    if native:
        return engine_ragged
    if model == "tensorrt_llm":
        return lambda tensor: ANY in tensor.dims
    return lambda tensor: tensor.name in TEXT_RAGGED


def _datatype(tensor: TensorSpec, deployment: DeploymentSettings) -> int:
    name: str = tensor.datatype
    if name == "LOGITS":
        name = deployment.logits.datatype
    elif deployment.engine == "tensorrt":
        if tensor.name == "prompt_embedding_table":
            name = deployment.prompt_table_datatype
        elif tensor.name == "encoder_input_features":
            name = deployment.encoder_features_datatype
    return int(model_config_pb2.DataType.Value(f"TYPE_{name}"))
