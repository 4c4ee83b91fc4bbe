"""Which GPUs the models of a repository are on, and whether they are in each other's way."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from gateway_ops.checking.findings import Finding
from gateway_ops.checking.repository_callers import drafts_for
from gateway_ops.checking.repository_models import (
    Models,
    engines,
    error,
    filled,
    instance_count,
    is_count,
    is_native,
    of_kind,
    warning,
)
from gateway_ops.checking.repository_values import is_share
from gateway_ops.repository.model_folders import ModelFolder

_STEPS = ("preprocessing", "postprocessing", "tensorrt_llm_bls")


def check_gpus(models: Models) -> Iterator[Finding]:
    """Check the GPUs of the engines for TensorRT-LLM's backend, and that the Python steps have none."""
    natives = {name: model for name, model in engines(models).items() if is_native(model)}
    for name, model in natives.items():
        if len(natives) > 1 and not _gpus(model):
            what = f"{name} is one of {len(natives)} engines, and has no gpu_device_ids: it takes all GPUs."
            yield error(model, "gpu_device_ids", what, "Give each engine GPUs of its own.")
        yield from _check_instances(model)
    drafting = drafts_for(models)
    for (first, one), (name, model) in combinations(natives.items(), 2):
        shared = sorted(_gpus(one) & _gpus(model))
        if shared and not _share_memory(one, model):
            what = f"GPU {shared[0]} is given to {name} and to {first}, whose shares of the free memory exceed 1."
            fix = "Give them different GPUs, lower kv_cache_free_gpu_mem_fraction, or set max_tokens_in_paged_kv_cache."
            yield warning(model, "gpu_device_ids", what, fix)
        folder = filled(model, "gpt_model_path").rstrip("/")
        apart = _gpus(one) and _gpus(model) and not shared  # then each is a copy of its own
        if folder and folder == filled(one, "gpt_model_path").rstrip("/") and (not apart or {first, name} in drafting):
            what = f"{name} and {first} load the same engine, {folder}."
            fix = "Name an engine for each, or one model with several instances."
            yield warning(model, "gpt_model_path", what, fix)
    for model in of_kind(models, *_STEPS).values():
        yield from _check_step(model)


def _gpus(model: ModelFolder) -> set[str]:
    groups = filled(model, "gpu_device_ids").split(";")
    return {gpu.strip() for group in groups for gpu in group.split(",") if gpu.strip()}


def _share_memory(one: ModelFolder, other: ModelFolder) -> bool:
    # What is bounded by a number of tokens takes no share; what is no share at all is named elsewhere.
    by_share = [model for model in (one, other) if not is_count(filled(model, "max_tokens_in_paged_kv_cache"))]
    shares = [filled(model, "kv_cache_free_gpu_mem_fraction") or "0.9" for model in by_share]
    return sum(float(share) for share in shares if is_share(share)) <= 1


def _check_instances(model: ModelFolder) -> Iterator[Finding]:
    """How an engine's instances come to their GPUs."""
    placed, groups = filled(model, "gpu_device_ids"), model.config.instance_group
    count = instance_count(model)
    if count > 1 and not placed:
        what = f"{count} instances of the engine are loaded onto the same GPUs: gpu_device_ids does not say which."
        yield error(model, "instance_group", what, "Set count: 1, or gpu_device_ids with a group for each.")
    named = [group for group in placed.split(";") if group.strip()]
    if len(named) > 1 and count != len(named) and "instance_group" not in model.unfilled:
        what = f"gpu_device_ids names {len(named)} instances, and the instance group has {count}."
        yield error(model, "gpu_device_ids", what, f"Set count: {len(named)}.")
    if not groups or any(group.kind in (group.KIND_AUTO, group.KIND_GPU) for group in groups):
        given = "With KIND_GPU" if any(group.kind == group.KIND_GPU for group in groups) else "Without KIND_CPU"
        what = f"{given} Triton makes instances for each GPU, and every one loads the engine."
        yield error(model, "instance_group", what, "Write KIND_CPU: the backend places the engine itself.")


def _check_step(model: ModelFolder) -> Iterator[Finding]:
    if any(group.kind == group.KIND_GPU for group in model.config.instance_group):
        what = "With KIND_GPU Triton makes instances for each GPU, and this model computes nothing there."
        yield warning(model, "instance_group", what, "Write KIND_CPU.")
