"""The command of a launch: one tritonserver, or ``mpirun`` with the options of each rank."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gateway_ops.local_stack.server_process import server_arguments
from gateway_ops.repository.launch_plan import LaunchPlan, Mode

IMAGE_BINARY: Final = Path("/opt/tritonserver/bin/tritonserver")
"""The path of tritonserver in NVIDIA's images, which TensorRT-LLM's launcher uses."""
LLMAPI_LAUNCH: Final = "trtllm-llmapi-launch"
"""TensorRT-LLM's program that makes a rank of the LLM API of each task."""


@dataclass(frozen=True, slots=True)
class LaunchPorts:
    """The address and the ports that rank 0 listens on."""

    host: str = "127.0.0.1"
    http: int = 8000
    grpc: int = 8001
    metrics: int = 8002

    @property
    def connect_host(self) -> str:
        """The address to connect to: the loopback address where ``host`` is a wildcard."""
        return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104 - compared, not bound

    @property
    def numbers(self) -> dict[str, int]:
        """The ports by their options."""
        return {"--http-port": self.http, "--grpc-port": self.grpc, "--metrics-port": self.metrics}


@dataclass(frozen=True, slots=True)
class LaunchChoices:
    """The choices of a launch beside its deployments.

    Attributes:
        repository: the model repository.
        tritonserver: the executable.
        ports: ports of rank 0.
        models: the Triton models to load; empty for all of the repository.
        exit_timeout_s: seconds that Triton waits for requests in flight after SIGTERM.
        gpus: visible GPUs.
        oversubscribe: whether mpirun may start more ranks than it counts slots.
        llmapi_ranks: whether mpirun starts the ranks of the LLM API, which spawns them otherwise.
        more: further options of tritonserver.
    """

    repository: Path
    tritonserver: Path = IMAGE_BINARY
    ports: LaunchPorts = field(default_factory=LaunchPorts)
    models: tuple[str, ...] = ()
    exit_timeout_s: int = 30
    gpus: int = 0
    oversubscribe: bool = False
    llmapi_ranks: bool = False
    more: tuple[str, ...] = ()


def command_of(plan: LaunchPlan, choices: LaunchChoices, name: str) -> list[str]:
    """Make the command that starts everything on this machine.

    Args:
        plan: plan for one machine.
        choices: choices of the launch.
        name: name of the server.
    """
    if plan.mode is Mode.PROCESS:
        return _server(plan, choices, name, None)
    words = ["mpirun", "--allow-run-as-root", *(["--oversubscribe"] if choices.oversubscribe else [])]
    if plan.mode is Mode.LLMAPI_RANKS:  # one of them starts tritonserver, the others work for it
        return [*words, "-n", str(plan.ranks), LLMAPI_LAUNCH, *_server(plan, choices, name, None)]
    for rank in range(plan.ranks):
        words += [*([":"] if rank else []), "-n", "1", *_server(plan, choices, name, rank)]
    return words


def _server(plan: LaunchPlan, choices: LaunchChoices, name: str, rank: int | None) -> list[str]:
    words = [str(choices.tritonserver)]
    words += server_arguments(name, choices.repository, exit_timeout_s=choices.exit_timeout_s, rank=rank)
    if rank:
        return [*words, *plan.rank_options(rank), *choices.more]
    for kind in ("http", "grpc", "metrics"):
        words += [f"--{kind}-address={choices.ports.host}", f"--{kind}-port={getattr(choices.ports, kind)}"]
    if choices.models:
        words += ["--model-control-mode=explicit", *(f"--load-model={model}" for model in choices.models)]
    if not plan.gpus:
        words.append("--allow-gpu-metrics=false")
    return [*words, *plan.memory_options(max(choices.gpus, plan.gpus)), *choices.more]


def shell_line(command: Sequence[str], env: Mapping[str, str]) -> str:
    """Write a command for a shell, with a rank on each line."""
    words = [*(f"{key}={shlex.quote(value)}" for key, value in env.items()), shlex.join(command)]
    return " ".join(words).replace(" : -n 1 ", " \\\n    : -n 1 ")


def slurm_line(plan: LaunchPlan, repository: Path) -> str:
    """Make the command that starts a plan for several machines inside a Slurm job."""
    options = f"--nodes={plan.nodes} --ntasks={plan.ranks} --ntasks-per-node={plan.ranks_per_node}"
    return f"srun --mpi=pmix {options} --kill-on-bad-exit=1 sh {shlex.quote(str(repository / 'launch.sh'))}"
