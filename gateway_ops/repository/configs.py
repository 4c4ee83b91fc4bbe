"""The configurations of a deployment's models, as protobuf."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tritonclient.grpc import model_config_pb2

from gateway.config.deployment_settings import DeploymentSettings
from gateway_ops.repository.engine_parameters import engine_parameters
from gateway_ops.repository.stock_models import (
    ENGINE_NAMES,
    PREPROCESSING_TO_ENGINE,
    inner_name,
    postprocessing_source,
    preprocessing_source,
)
from gateway_ops.repository.tensors import add_tensors, spec_of

ModelConfig = model_config_pb2.ModelConfig
Configs = dict[str, Any]
"""ModelConfig by name of the Triton model."""


def configurations(deployment: DeploymentSettings, draft: str | None = None, *, fast_logits: bool = False) -> Configs:
    """The configurations of a deployment.

    Args:
        deployment: without contradictions.
        draft: name of the Triton model that drafts for it, where there is one.
        fast_logits: whether it drafts for a target that it hands its logits to directly.
    """
    made = [_engine(deployment, fast_logits=fast_logits)]
    if deployment.role == "chat":
        made += [_preprocessing(deployment), _postprocessing(deployment), _ensemble(deployment)]
        if deployment.bls.enabled:
            made.append(_bls(deployment, draft))
    return {config.name: config for config in made}


def _start(deployment: DeploymentSettings, model: str, name: str, *, count: int = 1) -> Any:
    config = ModelConfig(name=name, max_batch_size=deployment.triton.max_batch_size)
    if model == "ensemble":
        config.platform = "ensemble"
    else:
        config.backend = "python"
        config.instance_group.add(count=count, kind=model_config_pb2.ModelInstanceGroup.KIND_CPU)
    add_tensors(config, deployment, model)
    return config


def _engine(deployment: DeploymentSettings, *, fast_logits: bool) -> Any:
    triton = deployment.triton
    native = deployment.engine == "tensorrt"
    config = _start(deployment, "tensorrt_llm", deployment.engine_name, count=max(1, len(triton.gpu_ids)))
    config.model_transaction_policy.decoupled = triton.decoupled
    if native:
        config.backend = "tensorrtllm"
        _add_queue(config, deployment)
    _add_parameters(config, engine_parameters(deployment, fast_logits=fast_logits))
    return config


def _add_queue(config: Any, deployment: DeploymentSettings) -> None:
    triton = deployment.triton
    batching = config.dynamic_batching
    batching.preferred_batch_size.append(triton.max_batch_size)
    batching.max_queue_delay_microseconds = triton.max_queue_delay_microseconds
    batching.default_queue_policy.max_queue_size = triton.max_queue_size


def _preprocessing(deployment: DeploymentSettings) -> Any:
    name = f"{deployment.prefix}preprocessing"
    config = _start(deployment, "preprocessing", name, count=deployment.triton.instances.preprocessing)
    if deployment.engine == "tensorrt":
        _add_queue(config, deployment)
    special = "true" if deployment.text.add_special_tokens else "false"
    _add_parameters(config, {"tokenizer_dir": deployment.folder, "add_special_tokens": special})
    return config


def _postprocessing(deployment: DeploymentSettings) -> Any:
    name = f"{deployment.prefix}postprocessing"
    config = _start(deployment, "postprocessing", name, count=deployment.triton.instances.postprocessing)
    config.dynamic_batching.preserve_ordering = True
    text = deployment.text
    _add_parameters(
        config,
        {
            "tokenizer_dir": deployment.folder,
            "skip_special_tokens": "true" if text.skip_special_tokens else "false",
            "state_capacity": str(text.state_capacity),
            "state_expiry_seconds": str(text.state_expiry_seconds),
        },
    )
    return config


def _bls(deployment: DeploymentSettings, draft: str | None) -> Any:
    name = f"{deployment.prefix}tensorrt_llm_bls"
    config = _start(deployment, "tensorrt_llm_bls", name, count=deployment.triton.instances.bls)
    config.model_transaction_policy.decoupled = deployment.triton.decoupled
    bls = deployment.bls
    parameters = {
        "accumulate_tokens": "true" if bls.accumulate_tokens else "false",
        "tensorrt_llm_model_name": deployment.engine_name,
        "max_concurrent_requests": str(bls.max_concurrent_requests or deployment.triton.max_batch_size),
        "engine_silence_seconds": str(bls.engine_silence_seconds),
    }
    if draft is not None:
        parameters["tensorrt_llm_draft_model_name"] = draft
    if deployment.prefix:
        parameters["preprocessing_model_name"] = f"{deployment.prefix}preprocessing"
        parameters["postprocessing_model_name"] = f"{deployment.prefix}postprocessing"
    _add_parameters(config, parameters)
    return config


def _ensemble(deployment: DeploymentSettings) -> Any:
    config = _start(deployment, "ensemble", f"{deployment.prefix}ensemble")
    text, engine, back = (spec_of(deployment, name) for name in ("preprocessing", "tensorrt_llm", "postprocessing"))
    own = spec_of(deployment, "ensemble")
    step = config.ensemble_scheduling.step.add(model_name=f"{deployment.prefix}preprocessing", model_version=-1)
    for tensor in text.inputs:
        step.input_map[tensor.name] = preprocessing_source(tensor.name)
    for tensor in text.outputs:
        step.output_map[tensor.name] = inner_name(tensor.name)
    taken = set(step.input_map.values())
    step = config.ensemble_scheduling.step.add(model_name=deployment.engine_name, model_version=-1)
    for tensor in text.outputs:
        step.input_map[PREPROCESSING_TO_ENGINE[tensor.name]] = inner_name(tensor.name)
    for tensor in own.inputs:
        if tensor.name not in taken:
            step.input_map[ENGINE_NAMES.get(tensor.name, tensor.name)] = tensor.name
    made = {tensor.name for tensor in engine.outputs}
    for tensor in own.outputs:
        if tensor.name in made:
            step.output_map[tensor.name] = tensor.name
    step = config.ensemble_scheduling.step.add(model_name=f"{deployment.prefix}postprocessing", model_version=-1)
    for tensor in back.inputs:
        step.input_map[tensor.name] = postprocessing_source(tensor.name)
    step.output_map["OUTPUT"] = "text_output"
    return config


def _add_parameters(config: Any, parameters: Mapping[str, str]) -> None:
    for name, value in parameters.items():
        config.parameters[name].string_value = value
