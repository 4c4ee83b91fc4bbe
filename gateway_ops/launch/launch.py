"""A launch of deployments: its plan, choices, environment and faults."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gateway.settings.deployment_settings import REFERENCE_PATTERN, DeploymentSettings
from gateway_ops.launch.checks import LaunchProblem, problems
from gateway_ops.launch.commands import LaunchChoices, command_of, shell_line, slurm_line
from gateway_ops.launch.gpus import visible_gpus
from gateway_ops.launch.installation import choose_installation
from gateway_ops.repository.configs import configurations
from gateway_ops.repository.launch_plan import LaunchPlan, plan_launch
from gateway_ops.repository.rendered_files import render
from gateway_ops.repository.speculative_rules import find_draft

_NAME_IN_PRINT = "gateway"  # a server that runs has one of its own


@dataclass(frozen=True, slots=True)
class Launch:
    """A launch before its start.

    Attributes:
        deployments: the deployments to serve.
        among: all deployments of the file.
        plan: plan of the processes.
        choices: choices for their command lines.
        env: their environment.
    """

    deployments: Sequence[DeploymentSettings]
    among: Sequence[DeploymentSettings]
    plan: LaunchPlan
    choices: LaunchChoices
    env: Mapping[str, str]

    @property
    def models(self) -> list[str]:
        """The Triton models of the launch."""
        return [name for one in self.deployments for name in configurations(one)]

    def command(self, name: str) -> list[str]:
        """Make the command for a server with a name."""
        return command_of(self.plan, self.choices, name)

    def printed(self) -> str:
        """Write the command for a shell, below a comment on what it is."""
        served = ", ".join(one.name for one in self.deployments)
        ranks = f", {self.plan.ranks} ranks" if self.plan.ranks > 1 else ""
        gpus = f", {self.plan.gpus} GPU{'s' * (self.plan.gpus > 1)}" if self.plan.gpus else ""
        nodes = f" on each of {self.plan.nodes} machines" if self.plan.nodes > 1 else ""
        if self.plan.nodes > 1:
            line = slurm_line(self.plan, self.choices.repository)
        else:
            line = shell_line(self.command(_NAME_IN_PRINT), self.plan.environment)
        return f"# {served}: {self.plan.mode.value}{ranks}{gpus}{nodes}\n{line}"

    def problems(self, python_models: Path) -> list[LaunchProblem]:
        """Find the faults of the launch.

        Args:
            python_models: this project's model repository, for the rendering that the repository is compared with.
        """
        rendering = render(self.deployments, python_models, self.among)
        found = problems(self.deployments, self.plan, self.choices, rendering, visible_gpus())
        return [*found, *self._absent_drafts()]

    def _absent_drafts(self) -> Iterator[LaunchProblem]:
        for deployment in self.deployments:
            draft = find_draft(deployment, self.among)
            if draft is not None and draft.engine_name not in self.models:
                what = f"{deployment.name} calls {draft.engine_name} for its drafts, which is not among these."
                yield LaunchProblem(what, f"Add --deployment {draft.name}.", fatal=False)


def prepare_launch(
    chosen: Sequence[DeploymentSettings],
    among: Sequence[DeploymentSettings],
    choices: LaunchChoices,
    tritonserver: Path | None,
) -> Launch:
    """Choose the installation of Triton and plan the launch of deployments.

    Args:
        chosen: the deployments to serve.
        among: all deployments of the file. If some are not chosen, Triton loads only the chosen models, by name.
        choices: options from the command line.
        tritonserver: the program from the command line; None to search for one.

    Raises:
        TritonStartError: only the embedded tritonserver exists, and it lacks a part.
    """
    resolved = [_resolved(one) for one in chosen]
    installation = choose_installation(tritonserver, resolved)
    plan = plan_launch(resolved, llmapi_ranks=choices.llmapi_ranks)
    launch = Launch(chosen, among, plan, choices, {**installation.env, **plan.environment})
    found = replace(
        choices,
        tritonserver=installation.binary,
        models=tuple(launch.models) if len(chosen) < len(among) else (),
        gpus=len(visible_gpus()),
        more=(*installation.options, *choices.more),
    )
    return replace(launch, choices=found)


def _resolved(deployment: DeploymentSettings) -> DeploymentSettings:
    """A deployment with the engine that the environment names, where the file leaves it to that."""
    if re.match(REFERENCE_PATTERN, deployment.engine):
        return deployment.model_copy(update={"engine": os.environ.get(deployment.engine[2:-1], deployment.engine)})
    return deployment
