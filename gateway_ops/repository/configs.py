"""The configurations of a deployment's models as protobuf, with a comment for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from tritonclient.grpc import model_config_pb2

from gateway.settings.deployment_settings import DeploymentSettings
from gateway.text.contract import ANY, ModelSpec, TensorSpec
from gateway_ops.repository.engine_parameters import engine_parameters
from gateway_ops.repository.stock_models import (
    ENGINE_NAMES,
    MODELS,
    PREPROCESSING_TO_ENGINE,
    TEXT_RAGGED,
    WIRED,
    engine_ragged,
    engine_scalar,
    inner_name,
    of_version,
    parse_version,
    postprocessing_source,
    preprocessing_source,
)

ModelConfig = model_config_pb2.ModelConfig
Configs = dict[str, Any]
"""ModelConfig by name of the Triton model."""


def configurations(deployment: DeploymentSettings, draft: str | None = None, *, fast_logits: bool = False) -> Configs:
    """Make the configurations of a deployment.

    Args:
        deployment: without contradictions.
        draft: name of its Triton draft model, if there is one.
        fast_logits: whether it is a draft whose target takes its logits directly.
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


_TEXT_FRONT = frozenset({"ensemble", "preprocessing"})


def spec_of(deployment: DeploymentSettings, model: str) -> ModelSpec:
    """The tensors of a stock model for a deployment's version, with its engine's extensions."""
    spec = of_version(MODELS[model], parse_version(deployment.trtllm))
    if deployment.engine != "tensorrt":
        return spec
    return replace(spec, inputs=_served(spec.inputs), outputs=_served(spec.outputs))


def _served(tensors: Iterable[TensorSpec]) -> tuple[TensorSpec, ...]:
    """Drop tensors that only this project's engines have; mere wiring stays."""
    return tuple(tensor for tensor in tensors if not tensor.extension or tensor.name in WIRED)


def add_tensors(config: Any, deployment: DeploymentSettings, model: str) -> None:
    """Declare the inputs and outputs of a stock model in a ModelConfig."""
    spec = spec_of(deployment, model)
    native = deployment.engine == "tensorrt" and model == "tensorrt_llm"
    ragged = _raggedness(model, native=native)
    for tensor in spec.inputs:
        entry = config.input.add(name=tensor.name, data_type=_datatype(tensor, deployment), dims=tensor.dims)
        # Triton leaves a request without a required input unanswered; the Python steps respond with an error.
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


_ABOUT = {
    "ensemble": """\
Text in, text out, through preprocessing, engine and postprocessing.

A step may leave out an output that is mapped here, and a later step runs without the optional input that it would have
been (tritonserver 2.51 and newer): log-probs, counts and the like are absent unless asked for.""",
    "preprocessing": """\
Text to token ids: the tokenizer is tokenizer_dir/tokenizer.json. Image and video tensors are not declared.

QUERY and REQUEST_OUTPUT_LEN are declared optional, but the model requires them: if Triton required them, a request
without them would end without a response.""",
    "postprocessing": """\
Token ids to text. Pieces with the same request id are decoded as one growing text; at most state_capacity texts are
stored, each for state_expiry_seconds after its last piece. BATCH_INDEX and SEQUENCE_INDEX are optional additions.

One instance, in order: streamed pieces must not arrive out of order.""",
    "tensorrt_llm_bls": """\
The ensemble's steps in one Python model, with the ensemble's tensors and a few more. Unsupported inputs are rejected
by name.

One instance serves max_concurrent_requests concurrently. A request whose engine sends nothing for
engine_silence_seconds is stopped and fails with an error. With accumulate_tokens, text_output is the whole text so far
while streaming.""",
    "tensorrt_llm": """\
The engine step: token ids in, token ids out.""",
}
_EXTENSIONS = {
    "ensemble": """

Inputs and outputs beyond TensorRT-LLM's are optional additions that only map inputs and outputs of the steps.
finish_reason is in the last response of each answer, requested or not: postprocessing ends a text by it.""",
    "preprocessing": """

RETURN_FINISH_REASON is there to be mapped; its output is always true: postprocessing ends a text by the reason.""",
    "postprocessing": """
FINISH_REASON, an optional addition, marks the last piece.""",
    "tensorrt_llm": """
Inputs and outputs beyond TensorRT-LLM's are optional additions that clients need not use.

A parameter value "${NAME}" is read from the environment when the model is loaded; an unset variable means "not given",
which is a load error for engine and gpt_model_path. Clients that read this configuration over gRPC see the name.""",
}


def about_model(stock: str, deployment: DeploymentSettings) -> str:
    """Make the comment at the top of a model's configuration."""
    extensions = "" if deployment.engine == "tensorrt" else _EXTENSIONS.get(stock, "")
    source = f"Tensors of TensorRT-LLM {deployment.trtllm}. Written by `gateway repo`, deployment {deployment.name!r}."
    return f"{_ABOUT[stock]}{extensions}\n\n{source}"
