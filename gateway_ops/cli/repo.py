"""``gateway repo``: renders a Triton model repository from the deployments of a settings file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gateway_ops.cli.console import echo, fail
from gateway_ops.cli.deployments import choose_deployments, load_deployments
from gateway_ops.cli.shared_options import SETTINGS_FILE, DeploymentsFile, Only, Overrides

if TYPE_CHECKING:
    from gateway.settings.deployment_settings import DeploymentSettings
    from gateway_ops.repository.model_folders import ModelFolder
    from gateway_ops.repository.rendered_files import Rendering


def repo(  # noqa: PLR0913, PLR0917 - one for each option
    file: DeploymentsFile = SETTINGS_FILE,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Folder to write.")] = None,
    overrides: Overrides = None,
    diff: Annotated[str | None, typer.Option(help="Compare with a folder or grpc://host:port; -o writes too.")] = None,
    only: Only = None,
    force: Annotated[bool, typer.Option("--force", help="Replace models of the same names in the folder.")] = False,
    model_dir: Annotated[
        Path | None, typer.Option("--model-dir", help="Folder of a BERT encoder or cross-encoder to render instead.")
    ] = None,
    slurm: Annotated[bool, typer.Option("--slurm", help="Render a job script for Slurm too, launch.sbatch.")] = False,
    repository: Annotated[Path | None, typer.Option(help="Folder of Python models; the gateway's by default.")] = None,
) -> None:
    """Render a model repository; report contradictions with the key, the reason and the fix.

    With --diff, exit 1 on differences and 2 when nothing could be compared.
    """
    # Imported here: the other commands need none of it.
    from gateway_ops.local_stack import LocalStackError  # noqa: PLC0415
    from gateway_ops.local_stack.stack import find_repository  # noqa: PLC0415
    from gateway_ops.repository.encoders import render_encoder  # noqa: PLC0415
    from gateway_ops.repository.rendered_files import RenderError, render, write  # noqa: PLC0415

    if output is None and diff is None:
        raise fail("Name a folder to write to with -o DIR, or compare with --diff.", 2)
    if diff is not None and (mistake := _address_mistake(diff)):
        raise fail(f"--diff {diff!r}: {mistake}", 2)
    if model_dir is not None and (overrides or only or slurm):
        raise fail("--model-dir goes without --set, --only and --slurm, which are of deployments.", 2)
    every = load_deployments(file, overrides or []) if model_dir is None else ()
    deployments = choose_deployments(file, every, only or [])
    try:
        python_models = repository or find_repository()
        if model_dir is not None:
            rendering = render_encoder(model_dir.expanduser().resolve(), python_models)
        else:
            rendering = render(deployments, python_models, every, slurm=slurm)
        if output is not None:
            write(rendering, output, replace=force)
            typer.echo(f"{output}: {', '.join(rendering.configs)}")
            _tell_of_drafts(deployments, every, output)
    except (RenderError, LocalStackError) as error:
        raise fail(error) from None
    if diff is not None and _show_differences(rendering, diff):
        raise typer.Exit(1)


def _address_mistake(other: str) -> str | None:
    """Explain why the argument of --diff is neither a folder nor the address of a Triton; None when it is."""
    address = other.removeprefix("grpc://")
    host, _, port = address.rpartition(":")
    right = bool(host) and "/" not in address and port.isdigit() and 0 < int(port) <= 65535
    if not other.strip():
        return "name a folder, or grpc://host:port."
    if address != other:
        return None if right else "write grpc://host:port of Triton's gRPC endpoint, such as grpc://127.0.0.1:8001."
    if "://" in other or (right and not Path(other).exists()):
        return "it is not a folder; for a running Triton write grpc://host:port of its gRPC endpoint."
    return None


def _tell_of_drafts(
    deployments: tuple[DeploymentSettings, ...], every: tuple[DeploymentSettings, ...], folder: Path
) -> None:
    """Name drafts that rendered models call and that the repository lacks."""
    from gateway_ops.repository.speculative_rules import find_draft  # noqa: PLC0415

    for deployment in deployments:
        draft = find_draft(deployment, every)
        if draft is not None and not (folder / draft.engine_name / "config.pbtxt").is_file():
            typer.echo(
                f"note: {deployment.name} calls {draft.engine_name} for its drafts, which is not in {folder}, "
                f"so they are not loaded: add --only {draft.name}.",
                err=True,
            )


def _show_differences(rendering: Rendering, other: str) -> bool:
    """Whether there are any."""
    from gateway_ops.repository.difference import differences  # noqa: PLC0415
    from gateway_ops.repository.rendered_files import file_differences  # noqa: PLC0415

    address = other.removeprefix("grpc://")
    folder = None if address != other else Path(other)
    if folder is None:
        changed = differences(rendering.configs, _running(address, list(rendering.configs)))
        lines = [str(one) for one in changed]
    else:
        models = _models_of(folder)
        found = {name: model.config for name, model in models.items()}
        unfilled = {name: model.unfilled_settings for name, model in models.items()}
        lines = [str(one) for one in differences(rendering.configs, found, full=True, unfilled=unfilled)]
        lines += file_differences(rendering, folder)
    for line in lines:
        echo(line)
    if not lines:
        typer.echo("No difference.")
    return bool(lines)


def _models_of(folder: Path) -> dict[str, ModelFolder]:
    """The models of a folder that have a configuration."""
    from gateway_ops.repository.model_folders import read_repository  # noqa: PLC0415

    try:
        models = read_repository(folder)
    except OSError as error:
        raise fail(f"{folder} cannot be read ({error.strerror}).", 2) from None
    broken = [f"{model.file}: {model.error}" for model in models.values() if model.error]
    if broken:
        raise fail("\n".join(broken), 2)
    return {name: model for name, model in models.items() if model.config is not None}


def _running(address: str, models: list[str]) -> dict[str, Any]:
    import asyncio  # noqa: PLC0415

    from gateway.generation import EngineError  # noqa: PLC0415
    from gateway.triton.inspection import read_configurations  # noqa: PLC0415

    try:
        return asyncio.run(read_configurations(address, models))
    except EngineError as error:
        raise fail(f"{address}: {error.message}", 2) from None
