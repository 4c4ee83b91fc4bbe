"""Checks parameters: unreadable values, misspelt names, and folders of ``tokenizer_dir``."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

from gateway.settings.deployment_settings import EngineKind
from gateway_ops.check.findings import Finding, Severity
from gateway_ops.check.repository.models import (
    LLMAPI,
    Models,
    at,
    engines,
    error,
    filled,
    is_native,
    stock_model,
    text_steps,
    warning,
)
from gateway_ops.check.repository.version_folders import loaded_versions
from gateway_ops.repository.contradictions import TREE
from gateway_ops.repository.engine_keys import PARAMETERS
from gateway_ops.repository.model_folders import ModelFolder
from gateway_ops.repository.template_variables import ENGINE_PARAMETERS

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
_LIST = (re.compile(r"[0-9]+(\s*,\s*[0-9]+)*"), "a whole number, or several separated by commas")
_GPUS = (re.compile(r"[0-9]+(\s*[,;]\s*[0-9]+)*"), "GPU numbers such as 0,1; for two instances 0,1;2,3")
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
        yield from _check_values_of(model)
        platform = model.config.platform
        if platform not in ("", "ensemble"):
            what = f"The platform is {platform!r}; these models do not run on this platform."
            yield error(model, "platform", what, 'Write platform: "ensemble", or a backend instead.')
    for model in engines(models).values():
        path = "gpt_model_path"
        if path in model.config.parameters and not model.config.parameters[path].string_value.strip():
            yield error(model, path, f"{path} is empty.", "Write the folder of the engine.")
        kind = filled(model, "engine")
        if not is_native(model) and kind and kind not in get_args(EngineKind):
            what = f"engine is {kind!r}, which does not exist."
            yield error(model, "engine", what, "Set llmapi, transformers or reference.")


def is_share(text: str) -> bool:
    """Tell whether a text is a number above 0 and at most 1."""
    try:
        return 0 < float(text) <= 1
    except ValueError:
        return False


def _check_values_of(model: ModelFolder) -> Iterator[Finding]:
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


_OF_NATIVE = frozenset(
    {
        *(variable.parameter for variable in ENGINE_PARAMETERS),
        *("tokenizer_dir", "FORCE_CPU_ONLY_INPUT_TENSORS", "EXECUTION_ENV_PATH", "worker_path", "engine_dir"),
        *("xgrammar_tokenizer_merge_path", "max_queue_size", "max_queue_delay_microseconds"),
    }
)
# Read by the gateway, and by this project's Python engines.
_OF_THIS_PROJECT = frozenset(
    {
        *(parameter.name for parameter in PARAMETERS),
        *("engine", "vocab_size", "guided_decoding_guide_types", "extra_args_file", "always_emit"),
    }
)
_OF_TEXT = frozenset(
    {
        *("tokenizer_dir", "add_special_tokens", "skip_special_tokens", "gpt_model_path", "tokenizer_type"),
        *("multimodal_model_path", "visual_model_path", "hf_model_path", "max_num_images", "engine_dir"),
        *("state_capacity", "state_expiry_seconds", "EXECUTION_ENV_PATH", "FORCE_CPU_ONLY_INPUT_TENSORS"),
    }
)
_OF_CALLERS = frozenset(
    {
        *("accumulate_tokens", "tensorrt_llm_model_name", "tensorrt_llm_draft_model_name", "multimodal_encoders_name"),
        *("preprocessing_model_name", "postprocessing_model_name", "max_concurrent_requests"),
        *("engine_silence_seconds", "context_model_name", "generation_model_name", "EXECUTION_ENV_PATH"),
    }
)
KNOWN_PARAMETERS = {
    "tensorrt_llm": _OF_NATIVE | _OF_THIS_PROJECT | {"context_model_name", "generation_model_name"},
    "preprocessing": _OF_TEXT,
    "postprocessing": _OF_TEXT,
    "tensorrt_llm_bls": _OF_CALLERS,
}
"""Parameters that a stock model's code reads, in any known version, and this project's in its place."""


def check_parameters(models: Models) -> Iterator[Finding]:
    """Find misspelt parameters, which Triton silently ignores."""
    for model in models.values():
        stock = stock_model(model)
        known = KNOWN_PARAMETERS.get(stock or LLMAPI, frozenset())
        # A misspelt parameter was not meant to be one that is set as well.
        absent = {name.lower(): name for name in known if not filled(model, name)}
        for name in sorted(set(model.config.parameters) - known):
            close = difflib.get_close_matches(name.lower(), absent, n=1, cutoff=0.85)
            if close:
                what = f"{stock} reads no parameter {name!r}, so the value has no effect."
                yield warning(model, name, what, f"Did you mean {absent[close[0]]!r}?")


_TOKENIZER = "tokenizer_dir"
# Files of a tokenizer for transformers; this project's steps read the first one.
_TOKENIZER_FILE = "tokenizer.json"
_TOKENIZER_FILES = (
    _TOKENIZER_FILE,
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
    "vocab.txt",
    "spiece.model",
)
_STEP_MODULES = ("text_to_tokens.py", "tokens_to_text.py")


def check_tokenizers(models: Models) -> Iterator[Finding]:
    """Check the tokenizers of the text steps, and that the steps of an ensemble share one."""
    for model in text_steps(models).values():
        if _TOKENIZER not in model.config.parameters:
            yield error(model, "parameters", "tokenizer_dir is missing.", "Set it to the model's folder.")
        elif not model.config.parameters[_TOKENIZER].string_value.strip():
            yield error(model, _TOKENIZER, "tokenizer_dir is empty.", "Write the model's folder.")
    for model in models.values():
        folder = filled(model, _TOKENIZER)
        if folder and stock_model(model) is not None:
            yield from _check_tokenizer(model, folder)
    for ensemble in models.values():
        yield from _check_same(ensemble, models)


def _check_tokenizer(model: ModelFolder, folder: str) -> Iterator[Finding]:
    own = any(
        (model.path / str(version) / file).is_file() for version in loaded_versions(model) for file in _STEP_MODULES
    )
    path, wanted = Path(folder), (_TOKENIZER_FILE,) if own or is_native(model) else _TOKENIZER_FILES
    if not path.is_absolute() and (own or folder.startswith((".", "~")) or folder.count("/") > 1):
        what = f"tokenizer_dir {folder!r} is relative to Triton's working directory."
        yield error(model, _TOKENIZER, what, "Write an absolute path.")
    elif not path.is_absolute():
        what = f"tokenizer_dir {folder!r} is downloaded from Hugging Face, or relative to Triton's working directory."
        yield Finding(
            Severity.INFO, at(model, _TOKENIZER), what, "Write an absolute path: the gateway reads the folder too."
        )
    elif path.exists() and not path.is_dir():
        yield error(model, _TOKENIZER, f"tokenizer_dir {folder!r} is a file.", "Name the folder that contains it.")
    elif path.is_dir() and not any((path / file).is_file() for file in wanted) and not list(path.glob("*.tiktoken")):
        what = f"{folder} holds no {_TOKENIZER_FILE}{'' if len(wanted) == 1 else ' or another tokenizer'}."
        yield error(model, _TOKENIZER, what, "Copy the model's tokenizer there, or name its folder.")


def _check_same(ensemble: ModelFolder, models: Models) -> Iterator[Finding]:
    """Check that the steps of one ensemble have the same tokenizer."""
    named: dict[str, str] = {}
    for step in ensemble.config.ensemble_scheduling.step:
        model = models.get(step.model_name)
        folder = filled(model, _TOKENIZER) if model is not None else ""
        if folder and model is not None:
            named.setdefault(folder.rstrip("/"), step.model_name)
            if len(named) > 1:
                (first, owner), *_ = named.items()
                what = f"tokenizer_dir is {folder}, but {first} in {owner}."
                yield error(model, _TOKENIZER, what, "Name the same folder in both.")
                return
