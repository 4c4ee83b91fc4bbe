"""Plans the processes that serve deployments together: their number, starter and models.

Sources: `scripts/launch_triton_server.py` of TensorRT-LLM 1.2.1 (`triton_backend/`), README and
`docs/llama_multi_instance.md` of tensorrtllm_backend: ranks above 0 load their engine alone; wire contract 6.3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from gateway.settings.deployment_settings import DeploymentSettings

ON_GPUS: Final = ("tensorrt", "llmapi", "transformers")

# What a rank above 0 does not do. Its engine never returns from loading, so the rank would serve no client; where the
# engine does return, as the CPU engine does, the rank must not take the ports of rank 0.
NO_ENDPOINTS: Final = ("--allow-http=false", "--allow-grpc=false", "--allow-metrics=false")


class Mode(str, Enum):
    """A way in which engines get their processes."""

    PROCESS = "one process"
    LEADER = "leader mode"
    ORCHESTRATOR = "orchestrator mode"
    WORKERS = "orchestrator mode with workers that start with it"
    LLMAPI_RANKS = "the LLM API's ranks"


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """The processes for deployments that share a Triton.

    Attributes:
        mode: how engines get their processes.
        ranks: tritonserver processes (or the LLM API's) that are started together; 1 needs neither mpirun nor srun.
        nodes: machines that the ranks are spread over.
        engine_models: Triton models that ranks above 0 load.
        gpus: needed GPUs of each machine; 0 for engines on the CPU.
        environment: variables that TensorRT-LLM reads.
    """

    mode: Mode
    ranks: int = 1
    nodes: int = 1
    engine_models: tuple[str, ...] = ()
    gpus: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def ranks_per_node(self) -> int:
        """The number of ranks on each machine."""
        return -(-self.ranks // self.nodes)

    @property
    def spawns(self) -> bool:
        """Whether TensorRT-LLM starts its workers itself (``MPI_Comm_spawn``)."""
        return self.mode is Mode.ORCHESTRATOR

    def rank_options(self, rank: int) -> list[str]:
        """The options of ranks above 0, which load engines and serve no client."""
        if rank == 0 or self.mode is Mode.LLMAPI_RANKS:
            return []
        return [
            "--model-control-mode=explicit",
            *(f"--load-model={name}" for name in self.engine_models),
            *NO_ENDPOINTS,
        ]

    def memory_options(self, gpus: int) -> list[str]:
        """The options with which an orchestrator leaves the memory of GPUs to its workers."""
        if not self.spawns:
            return []
        pools = [f"--cuda-memory-pool-byte-size={gpu}:0" for gpu in range(gpus)]
        return ["--pinned-memory-pool-byte-size=0", "--enable-peer-access=false", *pools]


def plan_launch(deployments: Sequence[DeploymentSettings], *, llmapi_ranks: bool = False) -> LaunchPlan:
    """Plan the processes of deployments.

    Args:
        deployments: without contradictions; one Triton serves all of them.
        llmapi_ranks: whether mpirun starts the LLM API's ranks also on one machine, where they cannot be spawned.
    """
    engines = [one for one in deployments if one.engine == "tensorrt"]
    worlds = [one.parallelism.tp * one.parallelism.pp for one in engines]
    nodes = max((one.parallelism.nodes for one in deployments), default=1)
    names = tuple(one.engine_name for one in engines)
    gpus = -(-_gpus(deployments) // nodes)
    if any(one.triton.executor == "orchestrator" for one in engines):
        workers = sum(len(group) for one in engines for group in one.triton.participant_ids)
        spawns = {"TRTLLM_ORCHESTRATOR": "1", "TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES": "0" if workers else "1"}
        mode = Mode.WORKERS if workers else Mode.ORCHESTRATOR
        return LaunchPlan(mode, 1 + workers, nodes, names, gpus, spawns)
    if max(worlds, default=1) > 1:
        return LaunchPlan(Mode.LEADER, max(worlds), nodes, names, gpus)
    world = max((one.parallelism.tp * one.parallelism.pp for one in deployments if one.engine == "llmapi"), default=1)
    if world > 1 and (llmapi_ranks or nodes > 1):
        return LaunchPlan(Mode.LLMAPI_RANKS, world, nodes, gpus=gpus)
    return LaunchPlan(Mode.PROCESS, gpus=gpus)


def _gpus(deployments: Sequence[DeploymentSettings]) -> int:
    """The GPUs that deployments need: those that they name, and beside those as many as the largest other one takes."""
    on_gpus = [one for one in deployments if one.engine in ON_GPUS]
    named = {gpu for one in on_gpus for group in one.triton.gpu_ids for gpu in group}
    others = [one.parallelism.tp * one.parallelism.pp for one in on_gpus if not one.triton.gpu_ids]
    return max([*others, *(gpu + 1 for gpu in named)], default=0)
