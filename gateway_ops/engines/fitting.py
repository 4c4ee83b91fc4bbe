"""Decides whether an engine fits onto a GPU, and finds single changes of the settings that make it fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.settings.deployment_settings import DeploymentSettings
from gateway_ops.engines.gpus import Gpu
from gateway_ops.engines.memory import Estimate, ModelShape, estimate, pool_bytes
from gateway_ops.engines.weights import Weights
from gateway_ops.repository.contradictions import contradictions

# The least compute capability by type: TensorRT-LLM's docs/source/features/quantization.md, "Hardware Support Matrix".
# The table begins with Ampere and does not cover int4_awq on older GPUs: there it is neither advised nor rejected.
_NEEDS = {"fp8": (8, 9), "w4a8_awq": (8, 9), "nvfp4": (10, 0), "bfloat16": (8, 0)}
_ADVISED = {"int4_awq": (8, 0), "fp8": (8, 9), "nvfp4": (10, 0)}
_STEPS = (4096, 2048, 1024)
_GROUPS = (2, 4, 8, 16)


@dataclass(frozen=True, slots=True)
class GpuFit:
    """The memory of a GPU that is left for the cache.

    Attributes:
        fits: whether the engine loads and its cache holds one sequence of full length.
        pool: bytes of the cache.
        at_once: sequences of full length that the cache holds.
        lacking: bytes that are missing; 0 where it fits.
    """

    fits: bool
    pool: int
    at_once: int
    lacking: int


def judge(estimate: Estimate, deployment: DeploymentSettings, memory: int, used: int = 0) -> GpuFit:
    """Compare an estimate with a GPU.

    Args:
        estimate: the estimate.
        deployment: the deployment.
        memory: bytes of the GPU.
        used: bytes of it that other engines use.
    """
    free = memory - used - estimate.fixed
    pool = pool_bytes(estimate, free, deployment)
    at_once = pool // estimate.kv_sequence
    needed = estimate.kv_sequence - pool if free > 0 else estimate.kv_sequence - free
    return GpuFit(at_once >= 1, pool, at_once, 0 if at_once >= 1 else needed)


def capability_of(gpu: Gpu) -> tuple[int, ...] | None:
    """The compute capability as comparable numbers; None for an unknown one."""
    parts = gpu.capability.split(".")
    return tuple(int(part) for part in parts) if all(part.isdigit() for part in parts) else None


def unsupported(deployment: DeploymentSettings, gpu: Gpu, source: str = "") -> str | None:
    """Say why the GPU has no kernels for the weights' type; None where it has them, or that is unknown.

    Args:
        deployment: the deployment with the wanted type.
        gpu: the GPU.
        source: the type of the checkpoint (`source_format.source_kind`).
    """
    has = capability_of(gpu)
    for kind in (deployment.model.quantization, deployment.model.dtype, source):
        needed = _NEEDS.get(kind)
        if needed is not None and has is not None and has < needed:
            least = ".".join(str(part) for part in needed)
            return f"{kind} needs compute capability {least}, and {gpu.name} has {gpu.capability}"
    return None


def remedies(
    deployment: DeploymentSettings, shape: ModelShape, weights: Weights, gpu: Gpu, used: int = 0
) -> Iterator[tuple[str, Any]]:
    """Yield single changes, a key and its value each, that make an engine fit without a contradiction."""
    for key, value in _changes(deployment, shape, gpu, weights, used):
        changed = with_value(deployment, key, value)
        fits = judge(estimate(changed, shape, weights), changed, gpu.memory_bytes, used).fits
        if fits and not list(contradictions([changed])):
            yield key, value


def _changes(
    deployment: DeploymentSettings, shape: ModelShape, gpu: Gpu, weights: Weights, used: int
) -> Iterator[tuple[str, int | float | str]]:
    tp, has = deployment.parallelism.tp, capability_of(gpu)
    wider = [group for group in _GROUPS if group > tp and shape.heads % group == 0]
    for group in wider:
        changed = with_value(deployment, "parallelism.tp", group)
        if judge(estimate(changed, shape, weights), changed, gpu.memory_bytes, used).fits:
            yield "parallelism.tp", group
            break
    if deployment.model.quantization == "none" and not weights.quantised:
        advised = [name for name, needed in _ADVISED.items() if has is not None and has >= needed]
        yield from (("model.quantization", name) for name in advised)
    if deployment.kv_cache.free_gpu_mem_fraction < 0.95:
        yield "kv_cache.free_gpu_mem_fraction", 0.95
    given = deployment.limits.max_num_tokens or _STEPS[0] * 2
    yield from (("limits.max_num_tokens", step) for step in _STEPS if step < given)
    found = estimate(deployment, shape, weights)
    room = judge(found, deployment, gpu.memory_bytes, used).pool // found.kv_token // 64 * 64
    if room >= 256 and found.held == found.longest:
        yield "limits.max_seq_len", room


def with_value(deployment: DeploymentSettings, key: str, value: Any) -> DeploymentSettings:
    """Copy a deployment with another value at a key path of two parts."""
    section, _, name = key.partition(".")
    changed = getattr(deployment, section).model_copy(update={name: value})
    return deployment.model_copy(update={section: changed})


def beside(deployments: Sequence[DeploymentSettings], index: int) -> list[int]:
    """The other deployments with an engine on the same GPUs."""
    mine = _gpus(deployments[index])
    return [
        other
        for other, deployment in enumerate(deployments)
        if other != index and deployment.engine in ("tensorrt", "llmapi") and _meet(mine, _gpus(deployment))
    ]


def _gpus(deployment: DeploymentSettings) -> frozenset[int]:
    return frozenset(gpu for group in deployment.triton.gpu_ids for gpu in group)


def _meet(one: frozenset[int], other: frozenset[int]) -> bool:
    return not one or not other or bool(one & other)
