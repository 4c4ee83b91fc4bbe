"""The script ``build_engines.sh`` of a repository, which builds its engines (wire contract 6.1)."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from gateway.settings.deployment_settings import DeploymentSettings
from gateway_ops.repository.build_steps import BuildStep, build_steps, checkpoint_tool, prepares_checkpoint
from gateway_ops.repository.engine_rules import step_bound
from gateway_ops.repository.model_shape import shape_of
from gateway_ops.repository.tool_flags import EXAMPLES_VARIABLE, MODEL_OPTIMIZER_VARIABLE, program_of

_HEAD = "#!/bin/sh\n# Written by `gateway repo`; {what}\nset -eu\n"
_CHECKPOINT = "$CHECKPOINT"


def build_script(deployments: Sequence[DeploymentSettings]) -> str:
    """Write the commands that build the engines, for a shell inside the server's image."""
    parts = [_HEAD.format(what="engines must be built in the image and on the GPUs that serve them.")]
    built = set()
    for deployment in deployments:
        made = deployment.engine_dir if deployment.engine == "tensorrt" else deployment.folder
        builds = deployment.engine == "tensorrt" or prepares_checkpoint(deployment)
        if builds and made not in built:  # several models may load one engine
            parts.append(_build(deployment))
            built.add(made)
    return "\n".join(parts)


def built_from(deployment: DeploymentSettings) -> str:
    """The commands that build an engine, without its name: equal for equal engines."""
    return _build(deployment).replace(_checkpoint(deployment), "").partition("\n")[2]


def _checkpoint(deployment: DeploymentSettings) -> str:
    return f"/tmp/{deployment.name}-checkpoint"  # noqa: S108 - in the operator's container


def _build(deployment: DeploymentSettings) -> str:
    by_hand = deployment.engine == "tensorrt" and checkpoint_tool(deployment) == "another"
    checkpoint = _CHECKPOINT if by_hand else _checkpoint(deployment)
    lines = [f"# {deployment.name}, TensorRT-LLM {deployment.trtllm}{_prompts(deployment)}"]
    lines += [_shell(step) for step in build_steps(deployment, checkpoint, f"{_checkpoint(deployment)}-original")]
    return "\n".join(lines) + "\n"


def _shell(step: BuildStep) -> str:
    """A step as a line of the shell, which finds upstream's examples by variables."""
    if step.by_hand:
        return f': "${{CHECKPOINT:?{step.by_hand}}}"'
    program = program_of(step.tool)
    words = [shlex.join(program.words)] if program.words else []
    if program.script:
        variable, default = (EXAMPLES_VARIABLE, "/app/tensorrt_llm/examples")
        if program.variable == MODEL_OPTIMIZER_VARIABLE:
            variable, default = MODEL_OPTIMIZER_VARIABLE, "/opt/TensorRT-Model-Optimizer/examples"
        words.append(f'"${{{variable}:={default}}}/{program.script}"')
    lines = [] if step.made is None or step.made[1].endswith("/" + step.made[0]) else [_moved(step.made)]
    words += [f'"{word}"' if word == _CHECKPOINT else shlex.quote(word) for word in step.options]
    return "\n".join([" ".join(words), *lines])


def _moved(made: tuple[str, str]) -> str:
    written, wanted = made
    return shlex.join(["mv", f"{wanted.rpartition('/')[0]}/{written}", wanted])


def _prompts(deployment: DeploymentSettings) -> str:
    """Remark that prompts are bounded by a step, where the settings do not say so."""
    limits, step = deployment.limits, step_bound(deployment)
    longest = limits.max_seq_len or shape_of(deployment.model).get("max_positions")
    if limits.max_input_len is not None or step is None or not isinstance(longest, int) or longest <= step:
        return ""
    return f"; it accepts prompts of at most {step} tokens, those of a step (limits.max_num_tokens)"
