"""Finds faults before a launch that would fail later."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gateway.settings.deployment_settings import DeploymentSettings
from gateway_ops.check import Severity
from gateway_ops.check.repository import check_repository
from gateway_ops.engines.machine import look_around
from gateway_ops.engines.verification import mismatches
from gateway_ops.launch.commands import LLMAPI_LAUNCH, LaunchChoices, LaunchPorts, slurm_line
from gateway_ops.local_stack.gateway_process import cannot_listen
from gateway_ops.local_stack.triton_installation import not_for_stubs
from gateway_ops.repository.difference import differences
from gateway_ops.repository.launch_plan import ON_GPUS, LaunchPlan, Mode
from gateway_ops.repository.model_folders import read_repository
from gateway_ops.repository.rendered_files import Rendering, file_differences


@dataclass(frozen=True, slots=True)
class LaunchProblem:
    """One reason to stop or to warn before a launch.

    Attributes:
        what: one sentence.
        fix: one sentence.
        fatal: whether it prevents the launch.
    """

    what: str
    fix: str
    fatal: bool = True

    def __str__(self) -> str:
        return f"{self.what} {self.fix}".rstrip()


def problems(
    deployments: Sequence[DeploymentSettings],
    plan: LaunchPlan,
    choices: LaunchChoices,
    rendering: Rendering,
    gpus: Sequence[str],
) -> list[LaunchProblem]:
    """Find the faults of a launch.

    Args:
        deployments: the deployments to serve.
        plan: plan of their processes.
        choices: choices of the launch.
        rendering: the expected repository.
        gpus: visible GPUs, as CUDA_VISIBLE_DEVICES names them.
    """
    found = [*_machines(plan, choices, os.environ)]
    if not found:  # on a wrong machine further checks mean nothing
        found = [
            *_programs(plan, choices),
            *_llmapi_ranks(plan, choices),
            *_ports(choices.ports),
            *_gpus(deployments, plan, gpus),
            *_engines(deployments),
        ]
    return [*found, *_repository(choices.repository, rendering)]


def _machines(plan: LaunchPlan, choices: LaunchChoices, environ: Mapping[str, str]) -> Iterator[LaunchProblem]:
    if plan.nodes > 1:
        what = f"{plan.ranks} ranks on {plan.nodes} machines are started by Slurm, not from one machine."
        line = slurm_line(plan, choices.repository)
        yield LaunchProblem(what, f"Submit the job of gateway repo --slurm, or run in an allocation: {line}")
    elif int(environ.get("SLURM_STEP_NUM_TASKS") or 1) > 1:
        what = f"srun has started this {environ['SLURM_STEP_NUM_TASKS']} times, and each would start all ranks."
        yield LaunchProblem(
            what, "Start it with --ntasks=1, or let srun start launch.sh of the repository, once a rank."
        )


def _programs(plan: LaunchPlan, choices: LaunchChoices) -> Iterator[LaunchProblem]:
    if shutil.which(str(choices.tritonserver)) is None:
        yield LaunchProblem(
            f"{choices.tritonserver} does not exist.",
            "Run this in NVIDIA's image, or name the program with --tritonserver.",
        )
    if plan.mode is not Mode.PROCESS and shutil.which("mpirun") is None:
        yield LaunchProblem(
            f"{plan.mode.value[0].upper()}{plan.mode.value[1:]} needs mpirun, which is not on PATH.",
            "Run this in NVIDIA's image, which has Open MPI.",
        )


def _llmapi_ranks(plan: LaunchPlan, choices: LaunchChoices) -> Iterator[LaunchProblem]:
    if choices.llmapi_ranks and plan.mode is not Mode.LLMAPI_RANKS:
        what = "--llmapi-ranks is for the LLM API over several GPUs, and these deployments do not use it."
        yield LaunchProblem(what, "Leave it out.")
    elif plan.mode is Mode.LLMAPI_RANKS and shutil.which(LLMAPI_LAUNCH) is None:
        yield LaunchProblem(f"{LLMAPI_LAUNCH} is not on PATH.", "Run this in TensorRT-LLM's image, which has it.")


def _ports(ports: LaunchPorts) -> Iterator[LaunchProblem]:
    if len(set(ports.numbers.values())) < len(ports.numbers):
        yield LaunchProblem(
            "Two of Triton's ports are the same.", f"Give {', '.join(ports.numbers)} different numbers."
        )
        return
    for option, port in ports.numbers.items():
        reason = cannot_listen(ports.host, port)
        if reason is not None:
            what = f"Triton cannot listen on {ports.host} port {port} ({reason})."
            yield LaunchProblem(what, f"Stop what uses it, or choose another port with {option}.")


def _gpus(deployments: Sequence[DeploymentSettings], plan: LaunchPlan, gpus: Sequence[str]) -> Iterator[LaunchProblem]:
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    seen = f"{len(gpus)} {'is' if len(gpus) == 1 else 'are'} visible"
    seen += f" (CUDA_VISIBLE_DEVICES={chosen})." if chosen is not None else "."
    needed = _needed_gpus(deployments, plan, chosen)
    if needed > len(gpus):
        yield LaunchProblem(
            f"The deployments need {needed} GPU{'s' * (needed > 1)}, and {seen}",
            "Give the container more GPUs, launch fewer deployments with --deployment, or change parallelism and "
            "triton.gpu_ids.",
        )
    elif chosen is not None:
        # This project's engines write their GPUs into the variable; TensorRT-LLM counts within it.
        for deployment in deployments:
            own = deployment.engine in ON_GPUS and deployment.engine != "tensorrt"
            outside = {str(gpu) for group in deployment.triton.gpu_ids for gpu in group} - set(gpus)
            if own and outside:
                what = (
                    f"{deployment.name}: GPU {min(outside)} of triton.gpu_ids is not in CUDA_VISIBLE_DEVICES={chosen}."
                )
                yield LaunchProblem(what, "Unset the variable, or name GPUs that it contains.")


def _needed_gpus(deployments: Sequence[DeploymentSettings], plan: LaunchPlan, chosen: str | None) -> int:
    """Count the GPUs that must be visible; those that TensorRT engines name are checked one by one elsewhere."""
    if chosen is None or any(one.engine == "tensorrt" for one in deployments):
        return plan.gpus
    others = [one for one in deployments if one.engine in ON_GPUS and not one.triton.gpu_ids]
    return max((one.parallelism.tp * one.parallelism.pp for one in others), default=0)


def _repository(folder: Path, rendering: Rendering) -> Iterator[LaunchProblem]:
    render = "Render it: gateway repo FILE -o"
    if not folder.is_dir():
        yield LaunchProblem(
            f"The model repository {folder} does not exist.", f"{render} {folder}, or name it with --repository."
        )
        return
    reason = not_for_stubs(folder)
    if reason is not None and any(config.backend == "python" for config in rendering.configs.values()):
        yield LaunchProblem(reason, "Move the repository into a folder without it.")
    missing = [name for name in rendering.configs if not (folder / name / "config.pbtxt").is_file()]
    if missing:
        yield LaunchProblem(f"{folder} lacks {', '.join(missing)}.", f"{render} {folder} --force.")
        return
    for finding in check_repository(folder):
        if finding.severity is not Severity.INFO and _concerns(finding.where, folder, rendering):
            said = f"{finding.where}: {finding.what}"
            yield LaunchProblem(said, finding.fix, fatal=finding.severity is Severity.ERROR)
    yield from _differences(folder, rendering)


def _concerns(where: str, folder: Path, rendering: Rendering) -> bool:
    """Whether a finding is on a model that is to be loaded, or on no model alone."""
    path = Path(where)
    return not path.is_relative_to(folder) or path.relative_to(folder).parts[:1] in [
        (name,) for name in rendering.configs
    ]


def _engines(deployments: Sequence[DeploymentSettings]) -> Iterator[LaunchProblem]:
    """Hold built engines against their deployments and this machine. GPUs are counted by themselves."""
    built = [one for one in deployments if one.engine in ("tensorrt", "llmapi")]
    machine = look_around() if built else None
    for deployment in built:
        for found in mismatches(deployment, machine):
            if found.where != deployment.name:
                yield LaunchProblem(f"{deployment.name}: {found.where}: {found.what}", found.fix, found.error)


def _differences(folder: Path, rendering: Rendering) -> Iterator[LaunchProblem]:
    """Say where a repository is not what the file describes: changed by hand, or rendered before the file was."""
    models = read_repository(folder)
    found = {name: model.config for name, model in models.items() if model.config is not None}
    unfilled = {name: model.unfilled_settings for name, model in models.items()}
    only = {name: config for name, config in found.items() if name in rendering.configs}
    changed = [str(one) for one in differences(rendering.configs, only, full=True, unfilled=unfilled)]
    changed += file_differences(rendering, folder)
    if changed:
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        what = f"{folder} differs from the file: {changed[0]}{more}."
        yield LaunchProblem(what, f"See gateway repo FILE --diff {folder}.", fatal=False)
