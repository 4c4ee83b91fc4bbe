"""Contradictions between a deployment, its model's shape and its kind of engine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from gateway.config.deployment import DeploymentSettings, ModelSource
from gateway.repository.engine_rules import Found

_SHAPE = {
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "layers": "num_hidden_layers",
    "vocab_size": "vocab_size",
    "max_positions": "max_position_embeddings",
}
# What this project's engines do without; a key that is written all the same would be dropped in silence.
_TENSORRT_ONLY = (
    *("engine_dir", "build", "encoder", "prompt_table_datatype", "runtime", "logits.datatype", "model.family"),
    "triton.executor",
    *("kv_cache.cross_fraction", "speculative.fast_logits", "triton.max_queue_delay_microseconds"),
)
_NOT_REFERENCE = (
    *("model.dtype", "model.quantization", "parallelism", "lora", "triton.gpu_ids", "triton.max_queue_size"),
    *("kv_cache.free_gpu_mem_fraction", "kv_cache.max_tokens", "kv_cache.host_memory_bytes", "kv_cache.dtype"),
    *("kv_cache.onboard_blocks", "kv_cache.max_attention_window", "kv_cache.sink_tokens", "scheduler"),
    *("decoding.mode", "limits.max_batch_size", "limits.max_input_len", "limits.max_num_tokens"),
    *("guided_decoding.backend", "guided_decoding.tokenizer_info", "speculative.max_draft_tokens"),
)
_NOT_LLMAPI = (
    *("model.quantization", "decoding.mode", "logits.context", "logits.generation", "triton.gpu_ids"),
    *("guided_decoding.tokenizer_info", "lora.modules", "lora.max_rank"),
)


def find(deployment: DeploymentSettings) -> Iterator[Found]:
    """Contradictions of one deployment with its model and its kind of engine."""
    yield from _shape(deployment)
    yield from _encoder(deployment)
    yield from _kind(deployment)
    yield from _references(deployment)


def shape_of(model: ModelSource) -> dict[str, int]:
    """Heads, layers and so on: as the settings say, else from ``config.json`` where it can be read here."""
    config = text_config_of(model)
    shape = {}
    for key, name in _SHAPE.items():
        value = getattr(model, key) or config.get(name)
        if isinstance(value, int) and value > 0:
            shape[key] = value
    return shape


def text_config_of(model: ModelSource) -> dict[str, Any]:
    """The model's ``config.json``, or the part of it about text; empty where it cannot be read here."""
    config = _config_of(model)
    nested = config.get("text_config")
    return nested if isinstance(nested, dict) else config


def _config_of(model: ModelSource) -> dict[str, Any]:
    """The model's ``config.json``; empty where it cannot be read here."""
    folder = Path(model.folder or model.source).expanduser()
    try:
        config: Any = json.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return config if isinstance(config, dict) else {}


def _encoder(deployment: DeploymentSettings) -> Iterator[Found]:
    config = _config_of(deployment.model)
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
    if layers is not None and layers % pp:
        yield "parallelism.pp", f"{layers} layers cannot be shared by {pp} stages", f"Take a divisor of {layers}."
    if (tp * deployment.parallelism.pp) % deployment.parallelism.nodes:
        reason = f"{tp * pp} GPUs cannot be spread over {deployment.parallelism.nodes} machines"
        yield "parallelism.nodes", reason, "Take a divisor of tp times pp."
    longest, positions = deployment.limits.max_seq_len, shape.get("max_positions")
    if isinstance(longest, int) and positions is not None and longest > positions:
        reason = f"it is {longest}, and the model was made for {positions} positions"
        fix = f"Take at most {positions}, or write model.max_positions where rope scaling allows more."
        yield "limits.max_seq_len", reason, fix


def _kind(deployment: DeploymentSettings) -> Iterator[Found]:
    if deployment.engine == "tensorrt":
        if not deployment.engine_dir:
            yield "engine_dir", "a TensorRT engine is loaded from a folder", "Name the folder, as the server sees it."
        return
    names = list(_TENSORRT_ONLY)
    names += _NOT_LLMAPI if deployment.engine == "llmapi" else _NOT_REFERENCE
    for name in names:
        if is_given(deployment, name):
            yield name, f"the engine {deployment.engine} has no use for it", "Leave it out."
    if deployment.engine != "llmapi" and deployment.logits.context != deployment.logits.generation:
        yield "logits.generation", "this engine gathers both kinds of logits or none", "Give both the same value."


def is_given(deployment: DeploymentSettings, key: str) -> bool:
    """Whether the settings file says something under a key."""
    section: Any = deployment
    for part in key.split("."):
        if not isinstance(section, BaseModel) or part not in section.model_fields_set:
            return False
        section = getattr(section, part)
    return section is not None


def _references(deployment: DeploymentSettings) -> Iterator[Found]:
    if deployment.engine != "tensorrt":
        return
    for key in ("model.source", "model.folder", "limits.max_seq_len", "logits.context", "logits.generation"):
        section: Any = deployment
        for part in key.split("."):
            section = getattr(section, part)
        if isinstance(section, str) and section.startswith("${"):
            yield key, f"the C++ backend does not read {section} from the environment", "Write the value."
    if deployment.decoding.exclude_input_in_output not in (True, False):
        reason = f"the C++ backend does not read {deployment.decoding.exclude_input_in_output} from the environment"
        yield "decoding.exclude_input_in_output", reason, "Write the value."
