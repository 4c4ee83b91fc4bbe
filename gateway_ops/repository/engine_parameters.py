"""Parameters of the engine model, for the C++ backend and for this project's Python engines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.settings.deployment_settings import DeploymentSettings, GuidedDecodingSettings
from gateway_ops.repository.engine_keys import LLMAPI, PARAMETERS, REFERENCE, TRANSFORMERS, engines_of, surest
from gateway_ops.repository.key_paths import is_given, value_at
from gateway_ops.repository.model_shape import shape_of
from gateway_ops.repository.template_variables import ENGINE_PARAMETERS

LLM_ARGUMENTS_FILE = "llm_args.json"
"""A file beside ``model.py`` with arguments of ``tensorrt_llm.LLM`` beyond the engine's own settings."""

# Written even at their default: mandatory keys, and those that have another default upstream.
_ALWAYS = frozenset(
    {
        *("limits.max_beam_width", "scheduler.batching", "scheduler.policy", "engine_dir"),
        *("kv_cache.free_gpu_mem_fraction", "kv_cache.reuse", "decoding.exclude_input_in_output"),
        *("decoding.normalize_log_probs", "runtime.executor_worker_path"),
    }
)

_ASKED_FOR = frozenset({"lora", "speculative", "guided_decoding", "encoder"})
# The C++ backend fails to load without these, with guides or not (model_instance_state.cc, 0.19 to 1.2); empty means
# none.
_LOOKED_FOR = ("guided_decoding_backend", "xgrammar_tokenizer_info_path")
_SPECULATIVE_MODES = frozenset({"medusa", "redrafter", "lookahead", "eagle"})
# Keys whose defaults are the C++ backend's and not those of the engines that read them.
_ONLY_GIVEN = {
    LLMAPI: frozenset({"runtime.cancellation_check_period_ms", "logits.context"}),
    TRANSFORMERS: frozenset({"runtime.cancellation_check_period_ms"}),
    REFERENCE: frozenset({"runtime.cancellation_check_period_ms"}),
}
STRUCTURAL_TAG = "structural_tag"
"""The kind of guide that llguidance does not know."""

# Keys of `lora`, and TensorRT-LLM's names of them in PeftCacheConfig.
_PEFT_CACHE = {
    "optimal_adapter_size": "optimal_adapter_size",
    "max_adapter_size": "max_adapter_size",
    "gpu_memory_fraction": "device_cache_percent",
    "host_memory_bytes": "host_cache_size",
}

Parameters = dict[str, str]


def engine_parameters(deployment: DeploymentSettings, *, fast_logits: bool = False) -> Parameters:
    """Make the parameters of the engine model by name; unset ones are left out.

    Args:
        deployment: the deployment.
        fast_logits: whether it is a draft whose target takes its logits directly.
    """
    if deployment.engine != "tensorrt":
        return {name: text for name, value in _python(deployment).items() if (text := _text(value)) != ""}
    own = {**_native(deployment), **({"speculative_decoding_fast_logits": True} if fast_logits else {})}
    texts = {name: text for name, value in own.items() if (text := _text(value)) != ""}
    return {**dict.fromkeys(_LOOKED_FOR, ""), **texts}


def _native(deployment: DeploymentSettings) -> Mapping[str, Any]:
    values: dict[str, Any] = {"FORCE_CPU_ONLY_INPUT_TENSORS": "no"}
    for variable in ENGINE_PARAMETERS:
        value = value_at(deployment, variable.key)
        asked_for = variable.key.partition(".")[0] in _ASKED_FOR  # a section that is there only when wanted
        if asked_for or variable.key in _ALWAYS or value != _default(variable.key):
            values[variable.parameter] = value
    speculative = deployment.speculative
    if speculative is not None and speculative.method in _SPECULATIVE_MODES:
        values["decoding_mode"] = speculative.method  # the backend reads lookahead's sizes only in its mode
    values["enable_chunked_context"] = bool(deployment.scheduler.chunked_context)
    values["tokenizer_dir"] = deployment.folder
    # The backend ignores these; the gateway reads them, because the engine does not report them.
    values["max_seq_len"] = deployment.limits.max_seq_len
    values["tokens_per_block"] = deployment.kv_cache.tokens_per_block
    values["vocab_size"] = shape_of(deployment.model).get("vocab_size")
    return values


def _python(deployment: DeploymentSettings) -> Mapping[str, Any]:
    engines = engines_of(deployment)
    values: dict[str, Any] = {
        "engine": deployment.engine,
        "gpt_model_path": deployment.folder,
        "tokenizer_dir": deployment.folder,
        "vocab_size": shape_of(deployment.model).get("vocab_size"),
        "gpt_model_type": deployment.scheduler.batching,
        "max_beam_width": deployment.limits.max_beam_width,
        "normalize_log_probs": deployment.decoding.normalize_log_probs,
        "guided_decoding_guide_types": _guide_types(deployment.guided_decoding),
    }
    for parameter in PARAMETERS:
        read = bool(set(engines) & set(parameter.readers))  # it may be unknown which of them will run
        applies = surest(engines) in parameter.readers and parameter.key not in _ONLY_GIVEN[surest(engines)]
        if applies or (read and is_given(deployment, parameter.key)):
            values[parameter.name] = value_at(deployment, parameter.key)
    if "max_batch_size" in values:
        values["max_batch_size"] = values["max_batch_size"] or deployment.triton.max_batch_size
    if "max_queue_size" in values:
        values["max_queue_size"] = values["max_queue_size"] or None
    if "tokens_per_block" in values:
        values["tokens_per_block"] = values["tokens_per_block"] or 32
    if engines == (LLMAPI,) and llm_arguments(deployment):
        values["extra_args_file"] = LLM_ARGUMENTS_FILE
    return values


def _guide_types(guided: GuidedDecodingSettings | None) -> tuple[str, ...]:
    """The kinds of guides that the engine takes: as given, else all that its library knows."""
    if guided is None:
        return ()
    known = "guide_types" in guided.model_fields_set or guided.backend == "xgrammar"
    return tuple(kind for kind in guided.guide_types if known or kind != STRUCTURAL_TAG)


def llm_arguments(deployment: DeploymentSettings) -> dict[str, Any]:
    """Make arguments of ``tensorrt_llm.LLM`` that the engine's own settings do not cover.

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
    parallelism = deployment.parallelism
    wanted = {
        "pipeline_parallel_size": parallelism.pp if parallelism.pp > 1 else None,
        "moe_tensor_parallel_size": parallelism.moe_tp,
        "moe_expert_parallel_size": parallelism.moe_ep,
        "max_input_len": deployment.limits.max_input_len,
        "max_num_tokens": deployment.limits.max_num_tokens,
        "kv_cache_config": cache_config,
    }
    if deployment.scheduler.policy != "guaranteed_no_evict":
        wanted["scheduler_config"] = {"capacity_scheduler_policy": deployment.scheduler.policy.upper()}
    if deployment.lora is not None:  # unset values stay at the LLM API's own defaults
        given = deployment.lora.model_dump(include=set(_PEFT_CACHE), exclude_unset=True)
        wanted["peft_cache_config"] = {_PEFT_CACHE[name]: value for name, value in given.items()}
    arguments = _set(wanted)
    if deployment.scheduler.chunked_context is not None:
        arguments["enable_chunked_prefill"] = deployment.scheduler.chunked_context
    return arguments


def _set(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is False or value not in (None, {}, [], 0)}


def _default(key: str) -> Any:
    """The default of a key, in a section that is always there."""
    section: Any = DeploymentSettings
    *parts, last = key.split(".")
    for part in parts:
        section = section.model_fields[part].annotation
    return section.model_fields[last].default


def _text(value: Any) -> str:
    """Write a value as parameters of a model have it; empty when it is unset."""
    if value is None or value == ():
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        if isinstance(value[0], tuple):
            return ";".join(_text(group) for group in value)
        return ",".join(str(item) for item in value)
    return str(value)
