"""Compares a built engine with its deployment and this machine, before Triton fails on a difference.

The engine's ``config.json``, which TensorRT-LLM writes, has its build options (``builder.py``: ``version``,
``pretrained_config``, ``build_config``); the manifest of `building.py` has command and GPU.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gateway.settings.deployment_settings import DeploymentSettings
from gateway_ops.engines.commands import PARTIAL
from gateway_ops.engines.gpus import Gpu
from gateway_ops.engines.machine import Machine, same_version
from gateway_ops.engines.manifest import (
    Manifest,
    ManifestError,
    changed_files,
    manifest_path,
    read_manifest,
)
from gateway_ops.engines.weights import unusable_model
from gateway_ops.repository.build_steps import build_steps, draft_length, prepares_checkpoint

_MOST_RANKS = 4096
_BUILD = "Build it with `gateway engine build`."
_REBUILD = "Build it again (`gateway engine build --rebuild`), or change the deployment to match the engine."


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One difference.

    Attributes:
        error: whether Triton would not load the engine, or would serve less than the deployment says.
        where: the file or folder.
        what: one sentence.
        fix: one sentence.
    """

    error: bool
    where: str
    what: str
    fix: str


@dataclass(frozen=True, slots=True)
class EngineRequirements:
    """The options that an engine must have been built with; None or empty ones are not compared.

    Attributes:
        trtllm: version of TensorRT-LLM.
        tp: tensor parallelism.
        pp: pipeline parallelism.
        world: number of all ranks.
        sizes: least values of ``build_config``, by its names.
        paged_context: settings that need paged context attention, by the words for them.
        lora: whether adapters are served.
        context_logits: whether logits of prompts are returned.
        block: tokens of a block of the cache.
    """

    trtllm: str = ""
    tp: int | None = None
    pp: int | None = None
    world: int | None = None
    sizes: Mapping[str, int | None] = field(default_factory=dict)
    paged_context: tuple[str, ...] = ()
    lora: bool = False
    context_logits: bool = False
    block: int | None = None


def wanted_by(deployment: DeploymentSettings) -> EngineRequirements:
    """The options that the engine of a deployment must have been built with."""
    limits, cache, sizes = deployment.limits, deployment.kv_cache, deployment.parallelism
    longest = limits.max_seq_len if isinstance(limits.max_seq_len, int) else None
    reuse = {"kv_cache.reuse": cache.reuse, "scheduler.chunked_context": bool(deployment.scheduler.chunked_context)}
    return EngineRequirements(
        deployment.trtllm,
        sizes.tp,
        sizes.pp,
        sizes.tp * sizes.pp,
        {
            "max_batch_size": limits.max_batch_size or deployment.triton.max_batch_size,
            "max_input_len": limits.max_input_len,
            "max_seq_len": longest,
            "max_num_tokens": limits.max_num_tokens,
            "max_beam_width": limits.max_beam_width,
            "max_draft_len": draft_length(deployment.speculative),
        },
        tuple(key for key, on in reuse.items() if on),
        deployment.lora is not None,
        deployment.logits.context is True,
        cache.tokens_per_block,
    )


def mismatches(
    deployment: DeploymentSettings, machine: Machine | None = None, *, whole: bool = False
) -> list[Mismatch]:
    """Find where a built engine, or a prepared checkpoint, differs from its deployment and from this machine.

    Args:
        deployment: without contradictions.
        machine: the machine that will serve; None for another one, so that only readable folders are compared.
        whole: hash weights as well.
    """
    few = [*_beside(deployment, machine), *_few_gpus(deployment, machine)]
    if deployment.engine == "tensorrt" and deployment.engine_dir:
        return [*engine_mismatches(Path(deployment.engine_dir), wanted_by(deployment), machine, whole=whole), *few]
    folder = Path(deployment.folder)
    if not prepares_checkpoint(deployment):
        return [*_of_model(deployment, folder, machine), *few]
    absent = not folder.is_dir() or not any(folder.iterdir())
    found = _absent(folder, machine) if absent else _of_manifest(folder, machine, whole=whole)
    return [*found, *few]


def _of_model(deployment: DeploymentSettings, folder: Path, machine: Machine | None) -> Iterator[Mismatch]:
    """Look at a model that the LLM API loads as it is."""
    if machine is None or deployment.engine != "llmapi" or "${" in deployment.folder:
        return
    reason = unusable_model(folder)
    if reason is not None:
        fetched = "Fetch it with `gateway engine build`." if build_steps(deployment, "", "") else "Put it there."
        yield Mismatch(True, str(folder), reason, fetched)


def engine_mismatches(
    folder: Path, needs: EngineRequirements, machine: Machine | None, *, whole: bool = False
) -> Iterator[Mismatch]:
    """Find where the engine in a folder differs from its requirements and this machine; as `mismatches`."""
    if not folder.is_dir() or not any(folder.iterdir()):
        yield from _absent(folder, machine)
        return
    yield from _of_manifest(folder, machine, whole=whole)
    yield from _of_engine(folder, needs)


def _absent(folder: Path, machine: Machine | None) -> Iterator[Mismatch]:
    partial = folder.with_name(folder.name + PARTIAL)
    if partial.exists():
        what = f"Only {partial} exists, an unfinished build."
        yield Mismatch(True, str(folder), what, "Run `gateway engine build` again: it rebuilds the step.")
    elif machine is not None:
        yield Mismatch(True, str(folder), "It does not exist.", _BUILD)


def _beside(deployment: DeploymentSettings, machine: Machine | None) -> Iterator[Mismatch]:
    """Find what is made beside an engine and is not there: the tokenizer's file of guides, adapters."""
    steps = build_steps(deployment, "", "") if machine is not None and deployment.engine == "tensorrt" else []
    for step in steps:
        if step.name.startswith(("guides", "adapter")) and not Path(step.result).exists():
            yield Mismatch(True, step.result, f"It is missing: {step.title}.", _BUILD)


def _few_gpus(deployment: DeploymentSettings, machine: Machine | None) -> Iterator[Mismatch]:
    sizes = deployment.parallelism
    needed = sizes.tp * sizes.pp // sizes.nodes
    if machine is not None and machine.gpus and len(machine.gpus) < needed:
        what = f"An instance takes {needed} GPUs of each machine, but nvidia-smi finds {len(machine.gpus)}."
        yield Mismatch(True, deployment.name, what, "Use a machine with more GPUs, or a smaller tp.")


def _of_manifest(folder: Path, machine: Machine | None, *, whole: bool) -> Iterator[Mismatch]:
    where = str(manifest_path(folder))
    try:
        manifest = read_manifest(folder)
    except ManifestError as error:
        yield Mismatch(True, where, str(error), _REBUILD)
        return
    if manifest is None and machine is None:
        return  # the GPU of the build matters only on the machine that runs the engine
    if manifest is None:
        what = "It has no manifest, so the GPU that it was built on is unknown."
        yield Mismatch(False, str(folder), what, "No fix is needed if it was built on the same kind of GPU.")
        return
    if not manifest.intact:
        what = "It was edited by hand: its checksum is wrong, so its contents cannot be relied on."
        yield Mismatch(True, where, what, f"Restore it. {_REBUILD}")
        return
    for changed in changed_files(folder, manifest, whole=whole):
        yield Mismatch(True, str(folder), f"{changed}, by the manifest.", "Copy it again, or rebuild it.")
    if machine is not None:
        yield from _other_machine(folder, manifest, machine)


def _other_machine(folder: Path, manifest: Manifest, machine: Machine) -> Iterator[Mismatch]:
    gpu = machine.gpus[0] if machine.gpus else Gpu("", 0)
    if manifest.capability and gpu.capability and manifest.capability != gpu.capability:
        what = f"It was built on {manifest.gpu} (compute capability {manifest.capability}), and here is {gpu.name}"
        fix = f"Run it on {manifest.gpu}, or build it here with --rebuild."
        yield Mismatch(True, str(folder), f"{what} ({gpu.capability}): it does not run on this one.", fix)
    elif manifest.gpu and gpu.name and manifest.gpu != gpu.name:
        what = (
            f"It was built on {manifest.gpu}, and here is {gpu.name}: it runs, but its kernels were chosen for the "
            "other GPU."
        )
        yield Mismatch(False, str(folder), what, "Build it here with --rebuild for full speed.")
    if manifest.trtllm and machine.trtllm and manifest.trtllm != machine.trtllm:
        what = f"TensorRT-LLM {manifest.trtllm} built it, but this machine has {machine.trtllm}."
        yield Mismatch(True, str(folder), what, "Use the image that built it, or build it here with --rebuild.")


def _of_engine(folder: Path, needs: EngineRequirements) -> Iterator[Mismatch]:
    path = folder / "config.json"
    try:
        config: Any = json.loads(path.read_bytes())
        version, build = str(config["version"]), dict(config["build_config"])
        mapping = dict(config["pretrained_config"]["mapping"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        what = "It is not the config.json of an engine: trtllm-build writes one with version, build_config and mapping."
        yield Mismatch(True, str(path), what, _BUILD)
        return
    if needs.trtllm and not same_version(needs.trtllm, version):
        what = f"TensorRT-LLM {version} built it, but the deployment has {needs.trtllm}."
        yield Mismatch(True, str(path), what, "Use the image that built it, or build it in the image that serves.")
    shares = {"tp_size": needs.tp, "pp_size": needs.pp, "world_size": needs.world if needs.tp is None else None}
    for name, share in shares.items():
        if share is not None and mapping.get(name, 1) != share:
            what = f"It was built for {name} {mapping.get(name, 1)}, but the deployment asks for {share}."
            yield Mismatch(True, str(path), what, _REBUILD)
    ranks = needs.world or mapping.get("world_size", 1)
    if type(ranks) is not int or not 0 < ranks <= _MOST_RANKS:
        yield Mismatch(True, str(path), f"It says world_size {reprlib.repr(ranks)}, which is not possible.", _BUILD)
        return
    missing = [name for name in (f"rank{rank}.engine" for rank in range(ranks)) if not (folder / name).is_file()]
    if missing:
        yield Mismatch(True, str(folder), f"It lacks {', '.join(missing)}.", _BUILD)
    for what in (*_bounds(build, needs), *_abilities(build, needs)):
        yield Mismatch(True, str(path), what, _REBUILD)


def _bounds(build: dict[str, Any], needs: EngineRequirements) -> Iterator[str]:
    """Compare lengths and sizes: an engine takes no more than it was built for."""
    for name, size in needs.sizes.items():
        built = build.get(name)
        if size is not None and isinstance(built, int) and built < size:
            yield f"It was built for {name} {built}, but the deployment asks for {size}."


def _abilities(build: dict[str, Any], needs: EngineRequirements) -> Iterator[str]:
    """Compare what an engine must have been built with for what is turned on."""
    plugins = build.get("plugin_config")
    plugins = plugins if isinstance(plugins, dict) else {}
    if plugins.get("use_paged_context_fmha") is False:
        yield from (f"It was built without paged context attention, which {key} needs." for key in needs.paged_context)
    if needs.lora and "lora_plugin" in plugins and not plugins["lora_plugin"]:
        yield "It was built without the LoRA plugin, which adapters need."
    if needs.context_logits and build.get("gather_context_logits") is False:
        yield "It was built without prompt logits, which the deployment asks for."
    block = plugins.get("tokens_per_block")
    if needs.block is not None and isinstance(block, int) and block != needs.block:
        yield f"It was built for blocks of {block} tokens, but the deployment asks for {needs.block}."
