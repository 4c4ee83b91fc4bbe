"""The commands of a build: each writes into a partial folder, which is renamed when it is complete."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path

from gateway.settings.deployment_settings import DeploymentSettings
from gateway_ops.repository.build_steps import BuildStep, build_steps
from gateway_ops.repository.tool_flags import EXAMPLES_VARIABLE, program_of

PARTIAL = ".partial"
_EXAMPLES = {
    EXAMPLES_VARIABLE: ("/app/tensorrt_llm/examples", "/app/examples"),
    "MODELOPT_EXAMPLES": ("/opt/TensorRT-Model-Optimizer/examples", "/app/Model-Optimizer/examples"),
}


@dataclass(frozen=True, slots=True)
class Command:
    """A step with its command.

    Attributes:
        step: the step.
        words: program and arguments; empty where the operator has to act.
        partial: the folder that it writes.
    """

    step: BuildStep
    words: tuple[str, ...]
    partial: Path

    @property
    def result(self) -> Path:
        """The folder or file of the finished step."""
        return Path(self.step.result)

    @property
    def single(self) -> bool:
        """Whether the result is one file, with its manifest beside it."""
        return self.step.made is not None

    def lines(self) -> list[str]:
        """The lines for a shell."""
        if not self.words:
            return [f"# {self.step.by_hand}: {self.step.output}"]
        made = self.partial / self.step.made[0] if self.step.made is not None else self.partial
        return [shlex.join(self.words), shlex.join(["mv", str(made), str(self.result)])]


def commands(deployment: DeploymentSettings, work: Path | None = None) -> list[Command]:
    """Make the commands of a deployment in order.

    Args:
        deployment: without contradictions.
        work: folder for intermediate results; None for a folder beside the result, on the same disk.
    """
    made = Path(deployment.engine_dir or "") if deployment.engine == "tensorrt" else Path(deployment.folder)
    base = work / deployment.name if work is not None else made.with_name(f"{made.name}.work")
    steps = build_steps(deployment, str(base / "checkpoint"), str(base / "original"))
    return [_command(step) for step in steps]


def _command(step: BuildStep) -> Command:
    result = Path(step.result)
    partial = result.with_name(result.name + PARTIAL)
    if not step.tool:
        return Command(step, (), partial)
    options = tuple(str(partial) if word == step.output else word for word in step.options)
    program = program_of(step.tool)
    script = (f"{examples_folder(program.variable)}/{program.script}",) if program.script else ()
    return Command(step, (*program.words, *script, *options), partial)


def examples_folder(variable: str) -> str:
    """The folder of a tool's scripts: by the environment, else the first of NVIDIA's image."""
    given = os.environ.get(variable)
    if given:
        return given.rstrip("/")
    usual = _EXAMPLES[variable]
    return next((folder for folder in usual if Path(folder).is_dir()), usual[0])
