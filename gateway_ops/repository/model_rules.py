"""Contradictions between a deployment, its model's shape and its kind of engine."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.config.deployment_settings import DeploymentSettings
from gateway_ops.repository.keys import Found, value_at
from gateway_ops.repository.model_shape import config_of, shape_of


def find(deployment: DeploymentSettings) -> Iterator[Found]:
    """Contradictions of one deployment with its model and its kind of engine."""
    yield from _shape(deployment)
    yield from _encoder(deployment)
    if deployment.engine == "tensorrt":
        if not deployment.engine_dir:
            yield "engine_dir", "a TensorRT engine is loaded from a folder", "Name the folder, as the server sees it."
        yield from _references(deployment)


def _encoder(deployment: DeploymentSettings) -> Iterator[Found]:
    config = config_of(deployment.model)
    # Models that read images name their encoder's configuration; those with an encoder for text say so.
    if deployment.encoder is None or not config or config.get("is_encoder_decoder") or "vision_config" in config:
        return
    reason = f"the model has no encoder: its config.json ({config.get('model_type', 'no model_type')}) is a decoder's"
    yield "encoder", reason, "Leave it out, or name an encoder-decoder model in model.source."


def _shape(deployment: DeploymentSettings) -> Iterator[Found]:
    shape, tp, pp = shape_of(deployment.model), deployment.parallelism.tp, deployment.parallelism.pp
    heads, kv_heads, layers = shape.get("heads"), shape.get("kv_heads"), shape.get("layers")
    if heads is not None and heads % tp:
        fix = f"Take one of {', '.join(str(n) for n in (1, 2, 4, 8, 16) if heads % n == 0)}."
        yield "parallelism.tp", f"{heads} attention heads cannot be shared by {tp} GPUs", fix
    elif kv_heads is not None and (kv_heads % tp if tp <= kv_heads else tp % kv_heads):
        reason = f"{kv_heads} heads of keys and values can neither be shared by {tp} GPUs nor be repeated on them"
        yield "parallelism.tp", reason, f"Take a divisor or a multiple of {kv_heads}."
    if heads is not None and kv_heads is not None and heads % kv_heads:
        reason = f"{heads} attention heads cannot be grouped over {kv_heads} heads of keys and values"
        yield "model.kv_heads", reason, f"Take a divisor of {heads}, as the model's config.json has it."
    if layers is not None and pp > layers:  # else the first stages have one more (TensorRT-LLM's mapping.py)
        yield "parallelism.pp", f"{layers} layers cannot be shared by {pp} stages", f"Take at most {layers}."
    if (tp * deployment.parallelism.pp) % deployment.parallelism.nodes:
        reason = f"{tp * pp} GPUs cannot be spread over {deployment.parallelism.nodes} machines"
        yield "parallelism.nodes", reason, "Take a divisor of tp times pp."
    longest, positions = deployment.limits.max_seq_len, shape.get("max_positions")
    if isinstance(longest, int) and positions is not None and longest > positions:
        reason = f"it is {longest}, and the model was made for {positions} positions"
        fix = f"Take at most {positions}, or write model.max_positions where rope scaling allows more."
        yield "limits.max_seq_len", reason, fix


def _references(deployment: DeploymentSettings) -> Iterator[Found]:
    """Variables of the environment, which only this project's engines read."""
    logits = ("logits.context", "logits.generation")
    for key in ("model.source", "model.folder", "limits.max_seq_len", *logits, "decoding.exclude_input_in_output"):
        value = value_at(deployment, key)
        if isinstance(value, str) and value.startswith("${"):
            yield key, f"the C++ backend does not read {value} from the environment", "Write the value."
