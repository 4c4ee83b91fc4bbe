"""Checks the engine models of a repository: files, decoding, and shared GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

from gateway_ops.check.findings import Finding, Severity
from gateway_ops.check.repository.models import (
    Models,
    at,
    engines,
    error,
    filled,
    instance_count,
    is_count,
    is_native,
    of_kind,
    tensors,
    warning,
)
from gateway_ops.check.repository.parameters import is_share
from gateway_ops.check.repository.wiring import drafts_for
from gateway_ops.repository.model_folders import ModelFolder

_STRATEGIES = ("inflight_fused_batching", "inflight_batching", "V1", "v1")
_POLICIES = ("guaranteed_no_evict", "max_utilization")
# Read without a default when there is guided decoding (model_instance_state.cc, 0.19 to 1.2); empty means none.
_LOOKED_FOR = ("tokenizer_dir", "guided_decoding_backend", "xgrammar_tokenizer_info_path")
_LOOKAHEAD = ("lookahead_window_size", "lookahead_ngram_size", "lookahead_verification_set_size")
_MODES = (*("auto", "top_k", "top_p", "top_k_top_p", "beam_search", "medusa", "redrafter", "lookahead", "eagle"),)


def check_engines(models: Models) -> Iterator[Finding]:
    """Check each engine model by itself."""
    for model in engines(models).values():
        if is_native(model):
            yield from _check_native(model)
            yield from _check_guided(model)
            yield from _check_cache(model)
        elif "engine" not in model.config.parameters:  # upstream's Python variant, not one of this project's
            yield from _check_guided_python(model)
        if "engine" not in model.config.parameters:
            yield from _check_folder(model)
        yield from _check_decoding(model)


def _check_native(model: ModelFolder) -> Iterator[Finding]:
    strategy, folder = filled(model, "gpt_model_type"), filled(model, "gpt_model_path")
    if "gpt_model_type" not in model.config.parameters or (strategy and strategy not in _STRATEGIES):
        what = (
            f"gpt_model_type is {strategy!r}, which the backend does not support."
            if strategy
            else "gpt_model_type is missing."
        )
        yield error(model, "gpt_model_type", what, "Set it to inflight_fused_batching.")
    elif strategy.lower() == "v1":
        what = "gpt_model_type V1 has no in-flight batching: a request waits until the batch before it is done."
        yield warning(model, "gpt_model_type", what, "Set it to inflight_fused_batching.")
    if "gpt_model_path" not in model.config.parameters:
        fix = "Set it to the folder that trtllm-build wrote."
        yield error(model, "parameters", "gpt_model_path is missing, so no engine is loaded.", fix)
    elif folder and not Path(folder).is_absolute():
        what = f"gpt_model_path {folder!r} is relative to Triton's working directory."
        yield error(model, "gpt_model_path", what, "Write an absolute path.")
    elif folder and Path(folder).is_dir() and not list(Path(folder).glob("rank*.engine")):
        what = f"{folder} does not contain rank0.engine."
        yield error(model, "gpt_model_path", what, "Build the engine there with trtllm-build.")


def _check_folder(model: ModelFolder) -> Iterator[Finding]:
    """Check that the TensorRT engine is there; a machine without the folder around it may not be Triton's."""
    folder = filled(model, "gpt_model_path")
    if Path(folder).is_absolute() and not Path(folder).exists():
        severity = Severity.WARNING if Path(folder).parent.is_dir() else Severity.INFO
        what, fix = (
            f"{folder} does not exist on this machine.",
            "Build the engine there, or run this check on the machine of Triton.",
        )
        yield Finding(severity, at(model, "gpt_model_path"), what, fix)


def _check_guided_python(model: ModelFolder) -> Iterator[Finding]:
    if filled(model, "guided_decoding_backend") == "xgrammar" and not filled(model, "tokenizer_dir"):
        what = "guided_decoding_backend is set without tokenizer_dir: the Python variant does not load."
        yield error(model, "guided_decoding_backend", what, "Set tokenizer_dir to the model's folder.")


def _check_guided(model: ModelFolder) -> Iterator[Finding]:
    backend, info = filled(model, "guided_decoding_backend"), filled(model, "xgrammar_tokenizer_info_path")
    if backend and not info:
        what = "guided_decoding_backend is set without xgrammar_tokenizer_info_path, which the C++ backend needs."
        fix = "Generate the file with generate_xgrammar_tokenizer_info.py, and set its path."
        yield error(model, "guided_decoding_backend", what, fix)
    elif backend and backend != "xgrammar":
        what = f"guided_decoding_backend is {backend!r}; the C++ backend supports only xgrammar, and does not load."
        yield error(model, "guided_decoding_backend", what, "Set xgrammar.")
    if "guided_decoding_guide" in tensors(model, "input"):
        for name in _LOOKED_FOR:
            if name not in model.config.parameters:
                what = (
                    f"The parameter {name} is missing: the C++ backend does not load without it, even if it is unused."
                )
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
        fix = f"Write {longest} or more, or remove it: kv_cache_free_gpu_mem_fraction limits the cache too."
        yield warning(model, "max_tokens_in_paged_kv_cache", what, fix)


def _check_decoding(model: ModelFolder) -> Iterator[Finding]:
    policy, mode = filled(model, "batch_scheduler_policy"), filled(model, "decoding_mode")
    if policy and policy not in _POLICIES:
        what = f"batch_scheduler_policy is {policy!r}, which the backend does not support."
        yield error(model, "batch_scheduler_policy", what, "Set guaranteed_no_evict or max_utilization.")
    if mode and mode not in _MODES:
        what = f"decoding_mode is {mode!r}, which the backend does not support."
        yield error(model, "decoding_mode", what, "Remove it, or set a supported mode.")
    missing = [name for name in _LOOKAHEAD if not filled(model, name)]
    if mode == "lookahead" and is_native(model) and missing:
        what = f"decoding_mode is lookahead, and {missing[0]} is not set: the C++ backend does not load."
        yield error(model, "decoding_mode", what, f"Set {', '.join(missing)}.")
    beams = filled(model, "max_beam_width")
    if beams and not (is_count(beams) and int(beams) > 0):
        yield error(model, "max_beam_width", f"max_beam_width is {beams!r}.", "Write a whole number from 1.")


_STEPS = ("preprocessing", "postprocessing", "tensorrt_llm_bls")


def check_gpus(models: Models) -> Iterator[Finding]:
    """Check the GPUs of engines for TensorRT-LLM's backend, and that Python steps have none."""
    natives = {name: model for name, model in engines(models).items() if is_native(model)}
    for name, model in natives.items():
        if len(natives) > 1 and not _gpus(model):
            what = f"{name} is one of {len(natives)} engines and has no gpu_device_ids, so it uses all GPUs."
            yield error(model, "gpu_device_ids", what, "Give each engine its own GPUs.")
        yield from _check_instances(model)
    drafting = drafts_for(models)
    for (first, one), (name, model) in combinations(natives.items(), 2):
        shared = sorted(_gpus(one) & _gpus(model))
        if shared and not _share_memory(one, model):
            what = (
                f"GPU {shared[0]} is given to {name} and to {first}, whose kv_cache_free_gpu_mem_fraction values add "
                "up to more than 1."
            )
            fix = "Give them different GPUs, lower kv_cache_free_gpu_mem_fraction, or set max_tokens_in_paged_kv_cache."
            yield warning(model, "gpu_device_ids", what, fix)
        folder = filled(model, "gpt_model_path").rstrip("/")
        separate = _gpus(one) and _gpus(model) and not shared  # then each is a copy of its own
        if (
            folder
            and folder == filled(one, "gpt_model_path").rstrip("/")
            and (not separate or {first, name} in drafting)
        ):
            what = f"{name} and {first} load the same engine, {folder}."
            fix = "Give each model its own engine, or use one model with several instances."
            yield warning(model, "gpt_model_path", what, fix)
    for model in of_kind(models, *_STEPS).values():
        yield from _check_step(model)


def _gpus(model: ModelFolder) -> set[str]:
    groups = filled(model, "gpu_device_ids").split(";")
    return {gpu.strip() for group in groups for gpu in group.split(",") if gpu.strip()}


def _share_memory(one: ModelFolder, other: ModelFolder) -> bool:
    # A cache bounded by tokens takes no share; a value that is not a share is reported elsewhere.
    by_share = [model for model in (one, other) if not is_count(filled(model, "max_tokens_in_paged_kv_cache"))]
    shares = [filled(model, "kv_cache_free_gpu_mem_fraction") or "0.9" for model in by_share]
    return sum(float(share) for share in shares if is_share(share)) <= 1


def _check_instances(model: ModelFolder) -> Iterator[Finding]:
    """Check the placement of an engine's instances on GPUs."""
    placed, groups = filled(model, "gpu_device_ids"), model.config.instance_group
    count = instance_count(model)
    if count > 1 and not placed:
        what = (
            f"{count} instances of the engine are loaded onto the same GPUs, because gpu_device_ids does not separate "
            "them."
        )
        yield error(model, "instance_group", what, "Set count: 1, or gpu_device_ids with a group for each.")
    named = [group for group in placed.split(";") if group.strip()]
    if len(named) > 1 and count != len(named) and "instance_group" not in model.unfilled:
        what = f"gpu_device_ids names {len(named)} instances, and the instance group has {count}."
        yield error(model, "gpu_device_ids", what, f"Set count: {len(named)}.")
    if not groups or any(group.kind in (group.KIND_AUTO, group.KIND_GPU) for group in groups):
        given = "With KIND_GPU" if any(group.kind == group.KIND_GPU for group in groups) else "Without KIND_CPU"
        what = f"{given} Triton creates instances for each GPU, and every instance loads the engine."
        yield error(model, "instance_group", what, "Write KIND_CPU: the backend places the engine itself.")


def _check_step(model: ModelFolder) -> Iterator[Finding]:
    if any(group.kind == group.KIND_GPU for group in model.config.instance_group):
        what = "With KIND_GPU Triton creates instances for each GPU, but this model does not use GPUs."
        yield warning(model, "instance_group", what, "Write KIND_CPU.")
