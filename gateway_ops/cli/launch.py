"""``gateway launch``: runs Triton for the deployments of a settings file, with the processes of their engines."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from gateway_ops.cli.console import echo, fail
from gateway_ops.cli.deployments import choose_deployments, load_deployments
from gateway_ops.cli.shared_options import SETTINGS_FILE, DeploymentsFile

if TYPE_CHECKING:
    from gateway_ops.launch.launch import Launch
    from gateway_ops.local_stack.server_watch import RestartPolicy

_RESTARTS: Final = 3


def launch(  # noqa: PLR0913, PLR0917 - one for each option
    file: DeploymentsFile = SETTINGS_FILE,
    only: Annotated[list[str] | None, typer.Option("--deployment", help="Deployments; all when not given.")] = None,
    repository: Annotated[Path, typer.Option(help="Model repository that `gateway repo` wrote.")] = Path("repository"),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the commands without starting anything.")] = False,
    restart: Annotated[str, typer.Option(help="no, or on-failure[:N]: at most N starts in a row (3).")] = "no",
    log_dir: Annotated[
        Path | None, typer.Option(help="Folder for triton.log and its predecessors; standard error when not given.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address that Triton listens on; 0.0.0.0: all.")] = "127.0.0.1",
    http_port: Annotated[int, typer.Option(min=1, max=65535, help="HTTP port of Triton.")] = 8000,
    grpc_port: Annotated[int, typer.Option(min=1, max=65535, help="gRPC port of Triton, for the gateway.")] = 8001,
    metrics_port: Annotated[int, typer.Option(min=1, max=65535, help="Metrics port of Triton.")] = 8002,
    exit_timeout: Annotated[int, typer.Option(min=0, help="Seconds for requests in flight after SIGTERM.")] = 30,
    ready_timeout: Annotated[float, typer.Option(min=1, help="Seconds that loading may take.")] = 1800.0,
    tritonserver: Annotated[
        Path | None, typer.Option(help="tritonserver program; by default of the image, PATH or the embedded one.")
    ] = None,
    oversubscribe: Annotated[bool, typer.Option("--oversubscribe", help="Allow more ranks than slots.")] = False,
    llmapi_ranks: Annotated[
        bool, typer.Option("--llmapi-ranks", help="Let mpirun start the ranks of the LLM API, if spawning them fails.")
    ] = False,
    more: Annotated[list[str] | None, typer.Argument(help="After --: further options of tritonserver.")] = None,
) -> None:
    """Serve deployments: check, start tritonserver or its ranks by mpirun, watch, and end in order.

    Exit status: 0 after SIGTERM or SIGINT; 2: nothing was started; 3: a model's process died; 4: not ready in time;
    else tritonserver's own, or 128 and its signal.
    """
    from gateway_ops.launch.commands import LaunchChoices, LaunchPorts  # noqa: PLC0415 - the other commands need none of it
    from gateway_ops.launch.launch import prepare_launch  # noqa: PLC0415
    from gateway_ops.launch.supervisor import JobSupervisor, LaunchJob  # noqa: PLC0415
    from gateway_ops.local_stack import LocalStackError  # noqa: PLC0415

    if str(file).startswith("-"):  # of `gateway launch -- --option`
        file, more = SETTINGS_FILE, [str(file), *(more or ())]
    policy = _policy(restart)
    among = load_deployments(file)
    chosen = choose_deployments(file, among, only or [])
    if not chosen:
        raise fail(f"{file} has no deployments.", 2)
    ports = LaunchPorts(host, http_port, grpc_port, metrics_port)
    choices = LaunchChoices(
        repository.absolute(),
        ports=ports,
        exit_timeout_s=exit_timeout,
        oversubscribe=oversubscribe,
        llmapi_ranks=llmapi_ranks,
        more=tuple(more or ()),
    )
    try:
        made = prepare_launch(chosen, among, choices, tritonserver)
    except LocalStackError as error:
        raise fail(error, 2) from None
    if dry_run:
        typer.echo(made.printed())
        return
    _check(made)
    typer.echo(made.printed(), err=True)
    job = LaunchJob(
        command=made.command,
        env=made.env,
        ports=ports,
        models=made.models,
        ready_timeout_s=ready_timeout,
        exit_timeout_s=exit_timeout,
        log_dir=log_dir,
        restart=policy,
    )
    try:
        raise typer.Exit(JobSupervisor(job, lambda line: echo(f"gateway launch: {line}", err=True)).run())
    except OSError as error:
        raise fail(f"tritonserver cannot be started ({error.strerror}: {error.filename}).", 2) from None


def _check(made: Launch) -> None:
    """Say what stands in the way, all of it; end where it is fatal."""
    from gateway_ops.local_stack import LocalStackError  # noqa: PLC0415
    from gateway_ops.local_stack.stack import find_repository  # noqa: PLC0415
    from gateway_ops.repository.rendered_files import RenderError  # noqa: PLC0415

    try:
        found = made.problems(find_repository())
    except (LocalStackError, RenderError) as error:
        raise fail(error, 2) from None
    for problem in found:
        if not problem.fatal:
            typer.echo(f"warning: {problem}", err=True)
    fatal = [str(problem) for problem in found if problem.fatal]
    if fatal:
        raise fail("\n".join(fatal), 2)


def _policy(text: str) -> RestartPolicy:
    from gateway_ops.local_stack.server_watch import RestartPolicy  # noqa: PLC0415

    match = re.fullmatch(r"on-failure(?::(\d+))?", text)
    if text != "no" and match is None:
        raise fail(f"--restart {text!r}: write no, on-failure, or on-failure:N.", 2)
    return RestartPolicy(int(match[1] or _RESTARTS) if match is not None else 0)
