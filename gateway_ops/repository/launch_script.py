"""The script ``launch.sh`` of a repository, which starts Triton alone, by mpirun, or as a task of srun.

It needs nothing but NVIDIA's image. SIGTERM reaches only the Triton that serves clients: mpirun would kill all ranks
soon after its own SIGTERM, amid the responses of rank 0 (orterun(1) of Open MPI 4.1, "Signal Propagation").
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Final

from gateway.settings.deployment_settings import DeploymentSettings
from gateway_ops.repository.launch_plan import LaunchPlan, Mode, plan_launch

REGIONS: Final = "prefix${SLURM_JOB_ID:+${SLURM_JOB_ID}_}"
"""The beginning of the names of a job's regions of shared memory, in a shell: jobs may share a machine."""

_HEAD: Final = """\
#!/bin/sh
# Written by `gateway repo`; starts Triton in the foreground of its image, on this repository.
# What follows it on the command line goes to tritonserver{mpirun}.
set -eu

here=$(cd "$(dirname "$0")" && pwd)"""

_TRITON: Final = 'tritonserver --model-repository="$here" --disable-auto-complete-config'
_PREFIX: Final = "--backend-config=python,shm-region-prefix-name="
_IF_SLURM: Final = 'if [ "${SLURM_STEP_NUM_TASKS:-1}" -gt 1 ]; then'

_RANK: Final = """\
rank=${{OMPI_COMM_WORLD_RANK:-}}
if [ "${{SLURM_STEP_NUM_TASKS:-1}}" -gt 1 ]; then
    rank=$SLURM_PROCID
fi
if [ -n "$rank" ]; then # srun or mpirun has started it for each rank
{role}
    exec {triton} \\
        {prefix}"{regions}${{rank}}_" "$@"
fi"""

_ORCHESTRATOR: Final = """\
    echo $$ >"${{RANK_0:-/dev/null}}"
    set -- {memory} "$@\""""

_ONE_OF_MANY: Final = """\
    if [ "$rank" -gt 0 ]; then
        trap '' TERM # it ends with rank 0, which serves its clients first
        set -- {others} "$@"
    else
        echo $$ >"${{RANK_0:-/dev/null}}"
    fi"""

_MPIRUN: Final = """\
if [ -n "${{RANK_0:-}}" ]; then
    echo "mpirun has set no OMPI_COMM_WORLD_RANK: use the mpirun of Open MPI" >&2
    exit 1
fi
RANK_0=$(mktemp)
export RANK_0
trap 'kill -TERM "$(cat "$RANK_0")" 2>/dev/null || kill -TERM $! 2>/dev/null || true' TERM INT
# shellcheck disable=SC2086
mpirun --allow-run-as-root ${{MPIRUN_OPTIONS:-}} -n {ranks} sh "$here/launch.sh" "$@" &
status=0
wait $! || status=$?
while kill -0 $! 2>/dev/null; do # a signal ended the wait, not the ranks
    status=0
    wait $! || status=$?
done
rm -f "$RANK_0"
exit "$status\""""


def launch_script(deployments: Sequence[DeploymentSettings]) -> str:
    """Write the script that starts Triton on the repository, with Slurm or without."""
    plan = plan_launch(deployments)
    if plan.mode in (Mode.PROCESS, Mode.LLMAPI_RANKS):
        lines = [_HEAD.format(mpirun=""), *_llmapi_ranks(deployments)]
        lines += [f'exec {_TRITON} "$@"'] if plan.mode is Mode.PROCESS else []
        return "\n".join(lines) + "\n"
    lines = [_HEAD.format(mpirun="" if plan.nodes > 1 else "; MPIRUN_OPTIONS are mpirun's")]
    lines += [f"export {name}={value}" for name, value in plan.environment.items()]
    lines += [_rank(plan)]
    if plan.nodes > 1:
        srun = f"srun --mpi=pmix --nodes={plan.nodes} --ntasks={plan.ranks} sh launch.sh"
        lines += [f'echo "{plan.ranks} GPUs of {plan.nodes} machines: start it with {srun}" >&2', "exit 1"]
    else:
        lines += [_MPIRUN.format(ranks=plan.ranks)]
    return "\n".join(lines) + "\n"


def _rank(plan: LaunchPlan) -> str:
    """The lines by which a process becomes its rank."""
    if plan.spawns:
        role = _ORCHESTRATOR.format(memory=shlex.join(plan.memory_options(plan.gpus)))
    else:
        role = _ONE_OF_MANY.format(others=shlex.join(plan.rank_options(1)))
    return _RANK.format(role=role, triton=_TRITON, prefix=_PREFIX, regions=REGIONS)


def _llmapi_ranks(deployments: Sequence[DeploymentSettings]) -> list[str]:
    """The lines for the LLM API's ranks: always on several machines, on one where Slurm has started several tasks."""
    plan = plan_launch(deployments, llmapi_ranks=True)
    if plan.mode is not Mode.LLMAPI_RANKS:
        return []
    command = f'exec trtllm-llmapi-launch {_TRITON} {_PREFIX}"{REGIONS}0_" "$@"'
    return [command] if plan.nodes > 1 else [_IF_SLURM, f"    {command}", "fi"]
