"""Contradictions in the placement of engines: GPUs, ranks, leader and orchestrator mode (wire contract 6.3)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from gateway.settings.deployment_settings import DeploymentSettings
from gateway_ops.repository.key_paths import Shared


def shared_placement(deployments: Sequence[DeploymentSettings]) -> Iterator[Shared]:
    """Find contradictions of deployments with their GPUs and ranks, and with each other."""
    yield from _shared_gpus(deployments)
    yield from _shared_ranks(deployments)


def _shared_gpus(deployments: Sequence[DeploymentSettings]) -> Iterator[Shared]:
    natives = [one for one in deployments if one.engine == "tensorrt"]
    used: dict[int, str] = {}
    for index, deployment in enumerate(deployments):
        yield from _groups(index, deployment)
        triton = deployment.triton
        orchestrated = triton.executor == "orchestrator"
        if deployment.engine == "tensorrt":
            if not orchestrated and (len(triton.gpu_ids) > 1 or len(natives) > 1):
                what = "several engines in one Triton" if len(natives) > 1 else "several instances"
                yield index, "triton.executor", f"{what} need the orchestrator mode", "Set executor: orchestrator."
            if len(natives) > 1 and not triton.gpu_ids:
                reason = "several engines in one Triton must not each use all GPUs"
                yield index, "triton.gpu_ids", reason, "Give each engine its own GPUs."
        if orchestrated and deployment.parallelism.nodes > 1:
            reason = "the orchestrator mode spawns its workers on one machine"
            yield index, "parallelism.nodes", reason, "Set executor: leader."
        for gpu in {gpu for group in triton.gpu_ids for gpu in group}:
            if gpu in used and not _draft_pair(deployment, used[gpu], deployments):
                reason = f"GPU {gpu} belongs to deployment {used[gpu]!r} already"
                yield index, "triton.gpu_ids", reason, "Choose other GPUs: engines do not share GPU memory."
                break
        for gpu in {gpu for group in triton.gpu_ids for gpu in group}:
            used.setdefault(gpu, deployment.name)


def _shared_ranks(deployments: Sequence[DeploymentSettings]) -> Iterator[Shared]:
    """Check ranks of workers that start with the orchestrator, which has rank 0: they count from 1 without a gap."""
    key, taken = "triton.participant_ids", {0: ""}
    natives = [(index, one) for index, one in enumerate(deployments) if one.engine == "tensorrt"]
    first = next((one.name for _, one in natives if one.triton.participant_ids), None)
    for index, deployment in natives if first is not None else ():
        triton, world = deployment.triton, deployment.parallelism.tp * deployment.parallelism.pp
        sizes = [len(group) for group in triton.participant_ids]
        instances = max(1, len(triton.gpu_ids))
        if not sizes:
            reason = (
                f"the workers of deployment {first!r} are started beforehand, so these workers must be started "
                "beforehand too"
            )
            yield index, key, reason, "Give each instance its ranks, or give no ranks in any deployment."
        elif triton.executor != "orchestrator":
            reason = "ranks are given to workers of the orchestrator mode"
            yield index, key, reason, "Set executor: orchestrator, or leave it out."
        elif any(size != world for size in sizes):
            wrong = next(size for size in sizes if size != world)
            reason = f"an instance has {wrong} ranks, but tp times pp is {world}"
            yield index, key, reason, f"Give each instance {world}."
        elif len(sizes) != instances:
            reason = f"there are {len(sizes)} groups of ranks, and {instances} instance{'s' * (instances > 1)}"
            yield index, key, reason, "Give each instance one group."
        for rank in (rank for group in triton.participant_ids for rank in group):
            owner = f"belongs to deployment {taken[rank]!r}" if taken.get(rank) else "is the orchestrator's own"
            if rank in taken:
                yield index, key, f"rank {rank} {owner}", "Take another rank."
            taken.setdefault(rank, deployment.name)
        missing = next(rank for rank in itertools.count(1) if rank not in taken)
        if missing < max(taken) and index == natives[-1][0]:
            yield (
                index,
                key,
                f"no deployment has rank {missing}, so the others would wait for it indefinitely",
                "Count from 1.",
            )


def _groups(index: int, deployment: DeploymentSettings) -> Iterator[Shared]:
    world = deployment.parallelism.tp * deployment.parallelism.pp
    seen: set[int] = set()
    for group in deployment.triton.gpu_ids:
        if len(group) != world:
            reason = f"an instance has {len(group)} GPUs, but tp times pp is {world}"
            yield index, "triton.gpu_ids", reason, f"Give each instance {world} GPUs."
            break
        if seen & set(group) or len(set(group)) != len(group):
            yield index, "triton.gpu_ids", "a GPU is given twice", "Give each instance its own GPUs."
            break
        seen |= set(group)


def _draft_pair(deployment: DeploymentSettings, other: str, deployments: Sequence[DeploymentSettings]) -> bool:
    """Whether two deployments are draft and target with caches that fit on one GPU."""
    pair = {deployment.name, other}
    for target in deployments:
        draft = target.speculative.draft if target.speculative is not None else None
        if draft is not None and pair == {target.name, draft}:
            # A cache bounded by max_tokens takes no share.
            caches = [one.kv_cache for one in deployments if one.name in pair]
            return sum(cache.free_gpu_mem_fraction for cache in caches if cache.max_tokens is None) <= 1
    return False
