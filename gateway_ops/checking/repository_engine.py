"""Faults of the engine models of a repository: what they load, and how they decode."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from gateway_ops.checking.findings import Finding, Severity
from gateway_ops.checking.repository_models import (
    Models,
    at,
    engines,
    error,
    filled,
    is_count,
    is_native,
    tensors,
    warning,
)
from gateway_ops.repository.model_folders import ModelFolder

_STRATEGIES = ("inflight_fused_batching", "inflight_batching", "V1", "v1")
_POLICIES = ("guaranteed_no_evict", "max_utilization")
# Read without a default as soon as there is guided decoding (model_instance_state.cc, 0.19 to 1.2); empty is none.
_LOOKED_FOR = ("tokenizer_dir", "guided_decoding_backend", "xgrammar_tokenizer_info_path")
_LOOKAHEAD = ("lookahead_window_size", "lookahead_ngram_size", "lookahead_verification_set_size")
_MODES = (*("auto", "top_k", "top_p", "top_k_top_p", "beam_search", "medusa", "redrafter", "lookahead", "eagle"),)


def check_engines(models: Models) -> Iterator[Finding]:
    """Check the engine models, each by itself."""
    for model in engines(models).values():
        if is_native(model):
            yield from _check_native(model)
            yield from _check_guided(model)
            yield from _check_cache(model)
        yield from _check_decoding(model)


def _check_native(model: ModelFolder) -> Iterator[Finding]:
    strategy, folder = filled(model, "gpt_model_type"), filled(model, "gpt_model_path")
    if "gpt_model_type" not in model.config.parameters or (strategy and strategy not in _STRATEGIES):
        what = f"gpt_model_type is {strategy!r}, which the backend does not know." if strategy else "No gpt_model_type."
        yield Finding(Severity.ERROR, at(model, "gpt_model_type"), what, "Set it to inflight_fused_batching.")
    elif strategy.lower() == "v1":
        what = "gpt_model_type V1 has no in-flight batching: a request waits until the batch before it is done."
        yield Finding(Severity.WARNING, at(model, "gpt_model_type"), what, "Set it to inflight_fused_batching.")
    if "gpt_model_path" not in model.config.parameters:
        fix = "Set it to the folder that trtllm-build wrote."
        yield Finding(Severity.ERROR, at(model, "parameters"), "There is no gpt_model_path, so no engine.", fix)
    elif folder and not Path(folder).is_absolute():
        what = f"gpt_model_path {folder!r} is relative to wherever Triton is started."
        yield Finding(Severity.ERROR, at(model, "gpt_model_path"), what, "Write an absolute path.")
    elif folder and Path(folder).is_dir() and not list(Path(folder).glob("rank*.engine")):
        what = f"{folder} holds no rank0.engine."
        yield Finding(Severity.ERROR, at(model, "gpt_model_path"), what, "Build the engine there with trtllm-build.")


def _check_guided(model: ModelFolder) -> Iterator[Finding]:
    backend, info = filled(model, "guided_decoding_backend"), filled(model, "xgrammar_tokenizer_info_path")
    if backend and not info:
        what = "guided_decoding_backend is set, but not xgrammar_tokenizer_info_path, which the C++ backend needs."
        fix = "Make the file with generate_xgrammar_tokenizer_info.py and name it."
        yield error(model, "guided_decoding_backend", what, fix)
    elif backend and backend != "xgrammar":
        what = f"guided_decoding_backend is {backend!r}; the C++ backend knows xgrammar only, and does not load."
        yield error(model, "guided_decoding_backend", what, "Set xgrammar.")
    if "guided_decoding_guide" in tensors(model, "input"):
        for name in _LOOKED_FOR:
            if name not in model.config.parameters:
                what = f"There is no parameter {name}: the C++ backend does not load without, wanted or not."
                yield error(
                    model, "parameters", what, f'Add parameters {{ key: "{name}" value {{ string_value: "" }} }}.'
                )


def _check_cache(model: ModelFolder) -> Iterator[Finding]:
    """Whether a sequence of the greatest length fits into the KV cache."""
    room, longest = filled(model, "max_tokens_in_paged_kv_cache"), filled(model, "max_seq_len")
    windows = [int(window) for window in filled(model, "max_attention_window_size").split(",") if is_count(window)]
    longest = str(min(int(longest), max(windows))) if windows and is_count(longest) else longest
    if is_count(room) and is_count(longest) and 0 < int(room) < int(longest):
        what = f"max_tokens_in_paged_kv_cache is {room}, but one sequence takes up to {longest}."
        fix = f"Write {longest} or more, or remove it: kv_cache_free_gpu_mem_fraction bounds the cache as well."
        yield warning(model, "max_tokens_in_paged_kv_cache", what, fix)


def _check_decoding(model: ModelFolder) -> Iterator[Finding]:
    policy, mode = filled(model, "batch_scheduler_policy"), filled(model, "decoding_mode")
    if policy and policy not in _POLICIES:
        what = f"batch_scheduler_policy is {policy!r}, which the backend does not know."
        yield error(model, "batch_scheduler_policy", what, "Set guaranteed_no_evict or max_utilization.")
    if mode and mode not in _MODES:
        what = f"decoding_mode is {mode!r}, which the backend does not know."
        yield error(model, "decoding_mode", what, "Remove it, or set one that it knows.")
    missing = [name for name in _LOOKAHEAD if not filled(model, name)]
    if mode == "lookahead" and is_native(model) and missing:
        what = f"decoding_mode is lookahead, and {missing[0]} is not set: the C++ backend does not load."
        yield error(model, "decoding_mode", what, f"Set {', '.join(missing)}.")
    beams = filled(model, "max_beam_width")
    if beams and not (is_count(beams) and int(beams) > 0):
        yield error(model, "max_beam_width", f"max_beam_width is {beams!r}.", "Write a whole number from 1.")
