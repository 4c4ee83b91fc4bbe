"""Parameters whose values nothing can read: no number, truth value, GPU, tree or engine, or nothing at all."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import get_args

from gateway.config.deployment_settings import EngineKind
from gateway_ops.checking.findings import Finding
from gateway_ops.checking.repository_models import Models, engines, error, filled, is_native
from gateway_ops.repository.contradictions import TREE
from gateway_ops.repository.model_folders import ModelFolder

_FLAGS = (
    *("enable_kv_cache_reuse", "enable_chunked_context", "exclude_input_in_output", "normalize_log_probs"),
    *("enable_trt_overlap", "kv_cache_onboard_blocks", "enable_context_fmha_fp32_acc", "multi_block_mode"),
    *("cuda_graph_mode", "speculative_decoding_fast_logits", "add_special_tokens", "skip_special_tokens"),
    "accumulate_tokens",
)
_WORDS = ("true", "1", "yes", "t", "y", "on", "false", "0", "no", "f", "n", "off")
_NATIVE_WORDS = ("True", "true", "TRUE", "1", "False", "false", "FALSE", "0")  # with another, the default holds
_COUNT = (re.compile(r"[0-9]+"), "a whole number")
_POSITIVE = (re.compile(r"0*[1-9][0-9]*"), "a whole number from 1")
_SECONDS = (re.compile(r"[0-9]+(\.[0-9]*)?"), "a number of seconds")
_LIST = (re.compile(r"[0-9]+(\s*,\s*[0-9]+)*"), "a whole number, or several with commas between")
_GPUS = (re.compile(r"[0-9]+(\s*[,;]\s*[0-9]+)*"), "GPU numbers, as 0,1 or, for two instances, 0,1;2,3")
_CHOICES = (TREE, "a tree as {0}, {0, 0}, {1}")
_FORMS = {
    **dict.fromkeys(
        (
            *("max_tokens_in_paged_kv_cache", "kv_cache_host_memory_bytes", "sink_token_length"),
            *("lora_cache_optimal_adapter_size", "lora_cache_max_adapter_size", "lora_cache_host_memory_bytes"),
            *("cuda_graph_cache_size", "lookahead_window_size", "lookahead_ngram_size"),
            *("lookahead_verification_set_size", "cancellation_check_period_ms", "stats_check_period_ms"),
            *("recv_poll_period_ms", "iter_stats_max_iterations", "request_stats_max_iterations"),
        ),
        _COUNT,
    ),
    **dict.fromkeys(
        ("max_concurrent_requests", "state_capacity", "num_nodes", "max_seq_len", "vocab_size", "tokens_per_block"),
        _POSITIVE,
    ),
    **dict.fromkeys(("engine_silence_seconds", "state_expiry_seconds"), _SECONDS),
    "max_attention_window_size": _LIST,
    "participant_ids": _GPUS,
    "gpu_device_ids": _GPUS,
    "medusa_choices": _CHOICES,
    "eagle_choices": _CHOICES,
}
_SHARES = (
    *("kv_cache_free_gpu_mem_fraction", "gpu_weights_percent", "lora_cache_gpu_memory_fraction"),
    "cross_kv_cache_fraction",
)


def check_values(models: Models) -> Iterator[Finding]:
    """Check the parameters of every model."""
    for model in models.values():
        yield from _check_parameters(model)
        platform = model.config.platform
        if platform not in ("", "ensemble"):
            what = f"The platform is {platform!r}; Triton has no such one for these models."
            yield error(model, "platform", what, 'Write platform: "ensemble", or a backend instead.')
    for model in engines(models).values():
        path = "gpt_model_path"
        if path in model.config.parameters and not model.config.parameters[path].string_value.strip():
            yield error(model, path, f"{path} is empty.", "Write the folder of the engine.")
        kind = filled(model, "engine")
        if not is_native(model) and kind and kind not in get_args(EngineKind):
            what = f"engine is {kind!r}, which this project does not have."
            yield error(model, "engine", what, "Set llmapi, transformers or reference.")


def is_share(text: str) -> bool:
    """Whether a text is a number above 0 and at most 1."""
    try:
        return 0 < float(text) <= 1
    except ValueError:
        return False


def _check_parameters(model: ModelFolder) -> Iterator[Finding]:
    for name in sorted(model.config.parameters):
        text = filled(model, name)
        if not text:
            continue
        if name in _FLAGS and (text not in _NATIVE_WORDS if is_native(model) else text.lower() not in _WORDS):
            yield error(model, name, f"{name} is {text!r}.", "Write true or false.")
        elif name in _FORMS and not _FORMS[name][0].fullmatch(text):
            yield error(model, name, f"{name} is {text!r}.", f"Write {_FORMS[name][1]}.")
        elif name in _SHARES and not is_share(text):
            what = f"{name} is {text!r}; it is a share of {_whole(name)}."
            yield error(model, name, what, "Write a number above 0 and at most 1.")


def _whole(name: str) -> str:
    return "the KV cache" if name == "cross_kv_cache_fraction" else "the GPU's memory"
