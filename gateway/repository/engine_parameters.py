"""Parameters of the engine model: the C++ backend's by its vocabulary, and those of this project's Python engines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.config.deployment import DeploymentSettings
from gateway.repository.vocabulary import ENGINE_PARAMETERS

LLM_ARGUMENTS_FILE = "llm_args.json"
"""Beside ``model.py``: what ``tensorrt_llm.LLM`` is told beyond the engine's own settings."""

# Written even where they are the default: the mandatory ones, and those whose default is another one upstream.
_ALWAYS = frozenset(
    {
        *("limits.max_beam_width", "scheduler.batching", "scheduler.policy", "scheduler.chunked_context", "engine_dir"),
        *("kv_cache.free_gpu_mem_fraction", "kv_cache.reuse", "decoding.exclude_input_in_output"),
        *("decoding.normalize_log_probs", "runtime.executor_worker_path"),
    }
)

_ASKED_FOR = frozenset({"lora", "speculative", "guided_decoding", "encoder"})

# Keys of `lora`, and TensorRT-LLM's names of them in PeftCacheConfig.
_PEFT_CACHE = {
    "optimal_adapter_size": "optimal_adapter_size",
    "max_adapter_size": "max_adapter_size",
    "gpu_memory_fraction": "device_cache_percent",
    "host_memory_bytes": "host_cache_size",
}

Parameters = dict[str, str]


def engine_parameters(deployment: DeploymentSettings) -> Parameters:
    """Parameters of the engine model by name; what is not set is left out, never written as ``${...}``."""
    own = _native(deployment) if deployment.engine == "tensorrt" else _python(deployment)
    return {name: text for name, value in own.items() if (text := _text(value)) != ""}


def _native(deployment: DeploymentSettings) -> Mapping[str, Any]:
    values: dict[str, Any] = {"FORCE_CPU_ONLY_INPUT_TENSORS": "no"}
    for variable in ENGINE_PARAMETERS:
        value = value_at(deployment, variable.key)
        asked_for = variable.key.partition(".")[0] in _ASKED_FOR  # a section that is there only when wanted
        if asked_for or variable.key in _ALWAYS or value != _default(variable.key):
            values[variable.parameter] = value
    values["tokenizer_dir"] = deployment.folder
    # Not the backend's: the gateway reads them, and is told nothing of them by the engine.
    values["max_seq_len"] = deployment.limits.max_seq_len
    values["tokens_per_block"] = deployment.kv_cache.tokens_per_block
    values["vocab_size"] = deployment.model.vocab_size
    return values


def _python(deployment: DeploymentSettings) -> Mapping[str, Any]:
    values: dict[str, Any] = {
        "engine": deployment.engine,
        "gpt_model_path": deployment.folder,
        "tokenizer_dir": deployment.folder,
        "max_seq_len": deployment.limits.max_seq_len,
        "vocab_size": deployment.model.vocab_size,
        "gpt_model_type": deployment.scheduler.batching,
        "max_beam_width": deployment.limits.max_beam_width,
        "exclude_input_in_output": deployment.decoding.exclude_input_in_output,
        "normalize_log_probs": deployment.decoding.normalize_log_probs,
        "enable_kv_cache_reuse": deployment.kv_cache.reuse,
        "tokens_per_block": deployment.kv_cache.tokens_per_block or 32,
    }
    if deployment.engine == "llmapi":
        values["tensor_parallel_size"] = deployment.parallelism.tp
        values["kv_cache_free_gpu_mem_fraction"] = deployment.kv_cache.free_gpu_mem_fraction
        values["max_batch_size"] = deployment.limits.max_batch_size or deployment.triton.max_batch_size
        values["max_queue_size"] = deployment.triton.max_queue_size or None
        values["dtype"] = deployment.model.dtype
        values["lora_prefetch_dir"] = value_at(deployment, "lora.prefetch_dir")
        values["extra_args_file"] = LLM_ARGUMENTS_FILE if llm_arguments(deployment) else None
    else:
        values["gather_logits"] = deployment.logits.context
    if deployment.guided_decoding is not None:
        values["guided_decoding_guide_types"] = deployment.guided_decoding.guide_types
    return values


def llm_arguments(deployment: DeploymentSettings) -> dict[str, Any]:
    """Arguments of ``tensorrt_llm.LLM`` that the engine's own settings do not cover.

    Sources: TensorRT-LLM 1.2.1 ``tensorrt_llm/llmapi/llm_args.py``, as recorded in ``tests/llmapi/signatures.json``.
    """
    cache = deployment.kv_cache
    cache_config = _set(
        {
            "max_tokens": cache.max_tokens,
            "max_attention_window": list(cache.max_attention_window),
            "sink_token_length": cache.sink_tokens,
            "host_cache_size": cache.host_memory_bytes,
            "onboard_blocks": cache.onboard_blocks,
            "dtype": None if cache.dtype == "auto" else cache.dtype,
        }
    )
    guided, parallelism = deployment.guided_decoding, deployment.parallelism
    wanted = {
        "pipeline_parallel_size": parallelism.pp if parallelism.pp > 1 else None,
        "moe_tensor_parallel_size": parallelism.moe_tp,
        "moe_expert_parallel_size": parallelism.moe_ep,
        "max_input_len": deployment.limits.max_input_len,
        "max_num_tokens": deployment.limits.max_num_tokens,
        "max_beam_width": deployment.limits.max_beam_width if deployment.limits.max_beam_width > 1 else None,
        "guided_decoding_backend": guided.backend if guided else None,
        "kv_cache_config": cache_config,
    }
    if deployment.scheduler.policy != "guaranteed_no_evict":
        wanted["scheduler_config"] = {"capacity_scheduler_policy": deployment.scheduler.policy.upper()}
    if deployment.lora is not None:  # what is not set stays at the LLM API's own defaults
        given = deployment.lora.model_dump(include=set(_PEFT_CACHE), exclude_unset=True)
        wanted["peft_cache_config"] = {_PEFT_CACHE[name]: value for name, value in given.items()}
    arguments = _set(wanted)
    if "chunked_context" in deployment.scheduler.model_fields_set:
        arguments["enable_chunked_prefill"] = deployment.scheduler.chunked_context
    return arguments


def _set(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is False or value not in (None, {}, [], 0)}


def value_at(deployment: DeploymentSettings, key: str) -> Any:
    """The value at a key path; None where a section on the way is not given."""
    value: Any = deployment
    for part in key.split("."):
        value = getattr(value, part, None)
    return value


def _default(key: str) -> Any:
    """The default of a key outside of the sections that may be missing."""
    section: Any = DeploymentSettings
    *parts, last = key.split(".")
    for part in parts:
        section = section.model_fields[part].annotation
    return section.model_fields[last].default


def _text(value: Any) -> str:
    """A value as parameters of a model are written; empty for what is not set."""
    if value is None or value == ():
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        if isinstance(value[0], tuple):
            return ";".join(_text(group) for group in value)
        return ",".join(str(item) for item in value)
    return str(value)
