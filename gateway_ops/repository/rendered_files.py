"""Renders and writes the files of a model repository, and compares them with a folder."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gateway.settings.deployment_settings import DeploymentSettings
from gateway_ops.repository import slurm as slurm_job
from gateway_ops.repository.build_steps import prepares_checkpoint
from gateway_ops.repository.configs import Configs, about_model, configurations
from gateway_ops.repository.engine_parameters import LLM_ARGUMENTS_FILE, llm_arguments
from gateway_ops.repository.launch_script import launch_script
from gateway_ops.repository.pbtxt import to_text
from gateway_ops.repository.scripts import build_script
from gateway_ops.repository.speculative_rules import find_draft, hands_logits_over


class RenderError(Exception):
    """A repository that cannot be rendered or written; the message says why, and the fix."""


@dataclass(slots=True)
class Rendering:
    """A rendered model repository, not written yet.

    Attributes:
        configs: ModelConfig by name of the Triton model.
        files: content by path within the repository.
    """

    configs: Configs = field(default_factory=dict)
    files: dict[Path, bytes] = field(default_factory=dict)


def render(
    deployments: Sequence[DeploymentSettings],
    python_models: Path,
    among: Sequence[DeploymentSettings] | None = None,
    *,
    slurm: bool = False,
) -> Rendering:
    """Render a model repository.

    Args:
        deployments: deployments without contradictions.
        python_models: this project's model repository, whose Python files are copied.
        among: all deployments of the file, where drafts are searched; None where it has no others.
        slurm: whether to add a job script for Slurm.

    Raises:
        RenderError: the Python files are missing.
    """
    rendering = Rendering()
    known = among or deployments
    for deployment in deployments:
        draft = find_draft(deployment, known)
        name = draft.engine_name if draft is not None else None
        configs = configurations(deployment, name, fast_logits=hands_logits_over(deployment, known))
        rendering.configs |= configs
        for name, config in configs.items():
            stock = stock_name(name, deployment)
            about = about_model(stock, deployment)
            rendering.files[Path(name) / "config.pbtxt"] = to_text(config, about).encode()
            rendering.files |= _model_files(deployment, name, stock, python_models)
    if any(deployment.engine == "tensorrt" or prepares_checkpoint(deployment) for deployment in deployments):
        rendering.files[Path("build_engines.sh")] = build_script(deployments).encode()
    rendering.files[Path("launch.sh")] = launch_script(deployments).encode()
    if slurm:
        rendering.files[Path(slurm_job.FILE)] = slurm_job.job_script(deployments).encode()
    return rendering


def stock_name(name: str, deployment: DeploymentSettings) -> str:
    """The stock name of a deployment's model."""
    return "tensorrt_llm" if name == deployment.engine_name else name.removeprefix(deployment.prefix)


def _model_files(deployment: DeploymentSettings, name: str, stock: str, python_models: Path) -> dict[Path, bytes]:
    target = Path(name) / "1"
    if stock == "ensemble" or (stock == "tensorrt_llm" and deployment.engine == "tensorrt"):
        return {target / ".gitkeep": b""}  # Triton wants the version folder, and git keeps no empty one
    files = python_files(python_models / stock / "1", target)
    arguments = llm_arguments(deployment) if stock == "tensorrt_llm" and deployment.engine == "llmapi" else {}
    if arguments:
        files[target / LLM_ARGUMENTS_FILE] = (json.dumps(arguments, indent=2) + "\n").encode()
    return files


def python_files(source: Path, target: Path) -> dict[Path, bytes]:
    """Read the files of a model's version folder, by their paths in a repository.

    Raises:
        RenderError: the folder has no ``model.py``.
    """
    if not (source / "model.py").is_file():
        raise RenderError(f"{source} has no model.py; name this project's triton_repo with --repository.")
    return {
        target / path.relative_to(source): path.read_bytes()
        for path in sorted(source.rglob("*"))
        if path.is_file() and not any(_is_left(part) for part in path.relative_to(source).parts)
    }


def _is_left(name: str) -> bool:
    """Whether a file or folder is left over from tools."""
    return name.startswith(".") or name == "__pycache__"


def write(rendering: Rendering, folder: Path, *, replace: bool) -> None:
    """Write a repository.

    Args:
        rendering: a repository.
        folder: the target; made when it does not exist.
        replace: whether models of the same names may be replaced; others stay.

    Raises:
        RenderError: the folder has other content, or cannot be written.
    """
    try:
        there = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
        taken = sorted(there & {path.parts[0] for path in rendering.files})
        if there and not replace:
            what = ", ".join(taken) if taken else "other files"
            raise RenderError(
                f"{folder} holds {what} already; name an empty folder, or replace the models with --force."
            )
        for name in rendering.configs:
            if (folder / name).is_dir():
                shutil.rmtree(folder / name)
        for path, content in rendering.files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)
            if path.suffix == ".sh":
                (folder / path).chmod(0o755)
    except OSError as error:
        raise RenderError(f"{folder} cannot be written ({error.strerror}: {error.filename}).") from None


def file_differences(rendering: Rendering, folder: Path) -> list[str]:
    """List files of rendered models that differ in a folder, are missing or are extra; a line each."""
    lines = []
    for path, content in rendering.files.items():
        if len(path.parts) == 1 or path.name in ("config.pbtxt", ".gitkeep"):  # scripts are not part of a model
            continue
        if not (folder / path).is_file():
            lines.append(f"{path}: only rendered")
        elif (folder / path).read_bytes() != content:
            lines.append(f"{path}: differs")
    for name in rendering.configs:
        there = sorted(path.relative_to(folder) for path in (folder / name).rglob("*.py"))
        lines += [f"{path}: only there" for path in there if path not in rendering.files]
    return lines
