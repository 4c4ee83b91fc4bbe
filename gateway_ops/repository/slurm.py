"""The Slurm job script ``launch.sbatch`` of a repository, whose tasks run ``launch.sh``.

Sources: tensorrtllm_backend's README ("within Slurm based clusters") and `docs/llmapi.md`, TensorRT-LLM's
`examples/llm-api/llm_mgmn_trtllm_serve.sh`, Slurm's manual pages srun(1) and sbatch(1); wire contract 6.4.
"""

from __future__ import annotations

from collections.abc import Sequence

from gateway.settings.deployment_settings import DeploymentSettings
from gateway_ops.repository.launch_plan import plan_launch

FILE = "launch.sbatch"

_HEAD = """\
#!/bin/bash
# Written by `gateway repo --slurm`: serves {served} with {what}.
# Submit it in the folder of the repository: sbatch --account=... --partition=... --time=... {file}
# Variables that it reads:
#   REPOSITORY  the model repository, where the nodes see it; the folder that the job was submitted in
#   IMAGE       image of a container with Triton and TensorRT-LLM, for Pyxis; none: what the nodes have
#   MOUNTS      further mounts of the container, such as /models:/models,/engines:/engines
#   MPI         the plugin for srun --mpi; pmix
#SBATCH --job-name={name}
#SBATCH --nodes={plan.nodes}
#SBATCH --ntasks-per-node={plan.ranks_per_node}
{gpus}#SBATCH --output=%x-%j.log
#SBATCH --signal=B:TERM@90
set -euo pipefail

fail() {{
    echo "error: $1" >&2
    exit 2
}}

# Options of sbatch win over those above, and MPI would wait for ever for ranks that are not there.
size="{plan.nodes} node(s) with {tasks} task(s)"
again="sbatch --nodes={plan.nodes} --ntasks-per-node={plan.ranks_per_node}{more} {file}"
if [ "${{SLURM_JOB_NUM_NODES:-0}}" != {plan.nodes} ] || [ "${{SLURM_TASKS_PER_NODE:-}}" != "{tasks}" ]; then
    has="${{SLURM_JOB_NUM_NODES:-no}} node(s) with ${{SLURM_TASKS_PER_NODE:-no}} task(s)"
    fail "this needs $size, and the job has $has: $again"
fi
if [ "${{SLURM_GPUS_ON_NODE:-{plan.gpus}}}" -lt {plan.gpus} ]; then
    fail "this needs {plan.gpus} GPU(s) on each node; $(hostname) has $SLURM_GPUS_ON_NODE for the job: $again"
fi
repository=${{REPOSITORY:-$SLURM_SUBMIT_DIR}}
if [ ! -f "$repository/launch.sh" ]; then
    fail "$repository holds no launch.sh: submit the job in the folder of the repository, or set REPOSITORY"
fi
container=()
if [ -n "${{IMAGE:-}}" ]; then
    container=(--container-image="$IMAGE" --container-mounts="$repository:$repository${{MOUNTS:+,$MOUNTS}}")
fi

"""

_TAIL = """\
step=$!
# Before the time limit, or by scancel --batch --signal=TERM: Triton completes what it has begun, then the job ends.
trap 'kill -TERM "$step" 2>/dev/null || true' TERM INT
status=0
wait "$step" || status=$?
while kill -0 "$step" 2>/dev/null; do # the signal ended the wait, not the step
    status=0
    wait "$step" || status=$?
done
# Regions of shared memory that killed servers left on the nodes.
srun --nodes={plan.nodes} --ntasks={plan.nodes} --ntasks-per-node=1 \\
    sh -c "rm -f /dev/shm/prefix${{SLURM_JOB_ID}}_*" || true
exit "$status"
"""


def job_script(deployments: Sequence[DeploymentSettings]) -> str:
    """Write the script for ``sbatch``.

    Args:
        deployments: without contradictions; one Triton serves all of them.
    """
    plan = plan_launch(deployments, llmapi_ranks=True)
    many = plan.nodes > 1
    head = _HEAD.format(
        served=", ".join(one.name for one in deployments),
        what=f"{_count(plan.ranks, 'rank')} on {_count(plan.nodes, 'node')}, {_count(plan.gpus, 'GPU')} on each",
        name=deployments[0].name,
        plan=plan,
        tasks=f"{plan.ranks_per_node}(x{plan.nodes})" if many else plan.ranks_per_node,
        gpus=f"#SBATCH --gpus-per-node={plan.gpus}\n" if plan.gpus else "",
        more=f" --gpus-per-node={plan.gpus}" if plan.gpus else "",
        file=FILE,
    )
    options = f"--nodes={plan.nodes} --ntasks={plan.ranks} --ntasks-per-node={plan.ranks_per_node}"
    step = [
        *(["export MPIRUN_OPTIONS=--oversubscribe # one task, of which mpirun makes several"] if plan.spawns else []),
        f'srun --mpi="${{MPI:-pmix}}" {options} --kill-on-bad-exit=1 \\',
        '    ${container[@]+"${container[@]}"} sh "$repository/launch.sh" "$@" &',
    ]
    return head + "\n".join(step) + "\n" + _TAIL.format(plan=plan)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"
