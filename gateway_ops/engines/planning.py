"""Plans engines: commands, sizes and memory, from settings, ``config.json`` and headers of weights."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gateway.settings.deployment_settings import DeploymentSettings, ModelSource
from gateway_ops.engines.commands import Command, commands
from gateway_ops.engines.config_sizes import odd_sizes, shaped_weights, type_of, usual_names
from gateway_ops.engines.fitting import GpuFit, beside, judge, remedies, unsupported
from gateway_ops.engines.gpus import Gpu
from gateway_ops.engines.manifest import ManifestError, read_manifest
from gateway_ops.engines.memory import Estimate, ModelShape, estimate, shape_from
from gateway_ops.engines.source_format import UnknownFormatError, source_bits, source_kind
from gateway_ops.engines.weights import UnreadableWeightsError, Weights, stored_weights
from gateway_ops.repository.build_steps import is_remote
from gateway_ops.repository.model_shape import quantization_of, text_config_of
from gateway_ops.repository.tool_flags import rejected_words

_ENGINES = ("tensorrt", "llmapi")


@dataclass(frozen=True, slots=True)
class EnginePlan:
    """The build and the memory of one deployment.

    Attributes:
        deployment: the deployment.
        commands: the commands in order.
        rejected: words of commands that the version's tools do not accept.
        estimate: the memory of each GPU; None where ``unknown`` says why.
        unknown: why nothing can be estimated.
        download: bytes of the source's weights, if known.
        gpu: the GPU that the estimate is compared with, if any.
        verdict: whether the deployment fits on ``gpu``.
        others: names of deployments on the same GPUs.
        fixes: single changes that make the deployment fit.
        warning: why the GPU cannot run the weights' type.
        seconds: durations of earlier runs, by the step's name.
    """

    deployment: DeploymentSettings
    commands: list[Command]
    rejected: list[str]
    estimate: Estimate | None = None
    unknown: str | None = None
    download: int | None = None
    gpu: Gpu | None = None
    verdict: GpuFit | None = None
    others: list[str] = field(default_factory=list)
    fixes: list[tuple[str, Any]] = field(default_factory=list)
    warning: str | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def fits(self) -> bool | None:
        """Whether the deployment fits on its GPU; None where that is unknown."""
        if self.warning is not None:
            return False
        return self.verdict.fits if self.verdict is not None else None

    def to_come(self) -> Iterator[tuple[Path, int]]:
        """Yield results that do not exist yet, with their bytes on disk as far as known."""
        sizes = {"download": self.download}
        if self.estimate is not None:
            sizes |= {"checkpoint": self.estimate.checkpoint, "engine": self.estimate.engine}
        for command in self.commands:
            size = sizes.get(command.step.name)
            if size is not None and command.words and not command.result.exists():
                yield command.result.absolute(), size

    @property
    def gpus(self) -> int:
        """The number of GPUs of one instance."""
        return self.deployment.parallelism.tp * self.deployment.parallelism.pp


def plan(
    deployments: Sequence[DeploymentSettings],
    *,
    gpu: Gpu | None = None,
    folders: Mapping[str, Path] | None = None,
    work: Path | None = None,
) -> list[EnginePlan]:
    """Plan the engines of deployments.

    Args:
        deployments: without contradictions; those that share GPUs are added up.
        gpu: the GPU of all deployments; None to compare with none.
        folders: folders of ``config.json`` and weights by deployment, if other than in the settings.
        work: folder for intermediate results.
    """
    measured = [_measure(deployment, (folders or {}).get(deployment.name)) for deployment in deployments]
    plans = []
    for index, deployment in enumerate(deployments):
        if deployment.engine not in _ENGINES:
            continue
        made = commands(deployment, work)
        rejected = [
            reason
            for one in made
            if one.words
            for reason in rejected_words(one.step.tool, deployment.trtllm, one.step.options)
        ]
        taken = _taken(deployments, measured, index, gpu)
        plans.append(_judged(deployment, made, rejected, measured[index], gpu, taken))
        plans[-1].others.extend(deployments[other].name for other in beside(deployments, index))
        plans[-1].seconds.update(_past(made))
    return plans


def lacking_space(plans: Sequence[EnginePlan]) -> Iterator[tuple[Path, int, int]]:
    """Yield disks that are too small for the results of plans: a folder, bytes needed, bytes free."""
    needed: dict[int, tuple[Path, int]] = {}
    for result, size in dict(made for one in plans for made in one.to_come()).items():  # a model that is shared, once
        folder = next(parent for parent in result.parents if parent.exists())
        disk = folder.stat().st_dev
        needed[disk] = (folder, needed.get(disk, (folder, 0))[1] + size)
    for folder, size in needed.values():
        free = shutil.disk_usage(folder).free
        if free < size:
            yield folder, size, free


@dataclass(frozen=True, slots=True)
class _Measured:
    shape: ModelShape | None
    weights: Weights | None
    estimate: Estimate | None
    unknown: str | None
    source: str = ""


def _measure(deployment: DeploymentSettings, folder: Path | None) -> _Measured:
    source = deployment.model if folder is None else ModelSource(source=str(folder))
    config = usual_names(text_config_of(source))
    if not config:
        where = folder or deployment.folder
        fetched = (
            f" (hf download {deployment.model.source} config.json --local-dir DIR)" if is_remote(deployment) else ""
        )
        why = f"{where}/config.json cannot be read here; name its folder with --model-dir{fetched}"
        return _Measured(None, None, None, why)
    odd, shape, kind = odd_sizes(config), shape_from(config), type_of(config)
    stored = quantization_of(source)
    if odd is not None or shape is None:
        return _Measured(None, None, None, odd or f"config.json of {kind} has its sizes in an unknown form")
    try:
        found = (stored_weights(Path(place)) for place in (folder, deployment.folder, deployment.model.source) if place)
        weights = next((one for one in found if one is not None), None)
        weights = weights or shaped_weights(config, source_bits(stored))
    except (UnreadableWeightsError, UnknownFormatError) as error:
        return _Measured(shape, None, None, str(error))
    if weights is None:
        return _Measured(shape, None, None, f"{kind} is unknown, and its weights are not available")
    return _Measured(shape, weights, estimate(deployment, shape, weights), None, source_kind(stored))


def _taken(
    deployments: Sequence[DeploymentSettings], measured: Sequence[_Measured], index: int, gpu: Gpu | None
) -> int:
    """Bytes that engines on the same GPUs hold, with their caches, as this one is loaded, in the order of the file."""
    taken = 0
    for other in beside(deployments, index):
        found = measured[other].estimate
        if found is not None and gpu is not None and other < index:
            taken += found.fixed + judge(found, deployments[other], gpu.memory_bytes, taken).pool
    return taken


def _judged(
    deployment: DeploymentSettings,
    made: list[Command],
    rejected: list[str],
    measured: _Measured,
    gpu: Gpu | None,
    used: int,
) -> EnginePlan:
    found, weights, shape = measured.estimate, measured.weights, measured.shape
    download = None
    if weights is not None:
        download = weights.stored_bytes or 2 * weights.total
    known = EnginePlan(deployment, made, rejected, found, measured.unknown, download, gpu)
    if gpu is None:
        return known
    known = replace(known, warning=unsupported(deployment, gpu, measured.source))
    if found is None or weights is None or shape is None:
        return known
    verdict = judge(found, deployment, gpu.memory_bytes, used)
    fixes = [] if verdict.fits else list(remedies(deployment, shape, weights, gpu, used))
    return replace(known, verdict=verdict, fixes=fixes)


def _past(made: list[Command]) -> dict[str, float]:
    """Seconds that steps took when they were run before, as their manifests say."""
    found = {}
    for command in made:
        with contextlib.suppress(ManifestError):  # a build names it
            manifest = read_manifest(command.result, single=command.single)
            if manifest is not None and manifest.intact:
                found[command.step.name] = manifest.seconds
    return found


def as_json(plan: EnginePlan) -> dict[str, Any]:
    """Write a plan for programs: sizes in bytes, times in seconds."""
    found, verdict = plan.estimate, plan.verdict
    memory = None
    if found is not None:
        names = ("weights", "activations", "buffers", "context", "kv_token", "kv_sequence", "kv_full_load")
        memory = {name: getattr(found, name) for name in names}
        memory |= {"longest": found.longest, "sequences": found.sequences}
    return {
        "deployment": plan.deployment.name,
        "engine": plan.deployment.engine,
        "trtllm": plan.deployment.trtllm,
        "gpus": plan.gpus,
        "steps": [
            {
                "name": command.step.name,
                "title": command.step.title,
                "command": list(command.words),
                "lines": command.lines(),
                "result": str(command.result),
                "by_hand": command.step.by_hand or None,
                "seconds_before": plan.seconds.get(command.step.name),
            }
            for command in plan.commands
        ],
        "refused": plan.rejected,
        "memory_per_gpu": memory,
        "unknown": plan.unknown,
        "disk": {
            "source": plan.download,
            "checkpoint": found.checkpoint if found is not None else None,
            "engine": found.engine if found is not None else None,
        },
        "gpu": None if plan.gpu is None else {"name": plan.gpu.name, "memory": plan.gpu.memory_bytes},
        "fits": plan.fits,
        "warning": plan.warning,
        "cache": None if verdict is None else {"bytes": verdict.pool, "full_sequences": verdict.at_once},
        "lacking": None if verdict is None else verdict.lacking,
        "would_fit_with": [{"key": key, "value": value} for key, value in plan.fixes],
        "shares_gpus_with": plan.others,
    }
