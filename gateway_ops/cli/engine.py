"""``gateway engine``: plans, builds and checks engines."""

from __future__ import annotations

import signal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gateway_ops.cli.console import Progress, echo_json, fail
from gateway_ops.cli.deployments import choose_deployments, load_deployments
from gateway_ops.cli.shared_options import SETTINGS_FILE, DeploymentsFile, Json, Only, Overrides

if TYPE_CHECKING:
    from gateway.settings.deployment_settings import DeploymentSettings
    from gateway_ops.engines.gpus import Gpu
    from gateway_ops.engines.planning import EnginePlan

app = typer.Typer(help="Plan, build and check engines.", no_args_is_help=True)

_Work = Annotated[Path | None, typer.Option(help="Folder for intermediate files; beside the engine when not given.")]
_ModelDir = Annotated[
    list[str] | None,
    typer.Option("--model-dir", help="DIR or deployment=DIR: where config.json is, if elsewhere on this machine."),
]
_GpuName = Annotated[str | None, typer.Option("--gpu", help="Kind of GPU, such as h100; this machine's by default.")]
_GpuMemory = Annotated[float | None, typer.Option("--gpu-memory", help="Memory of an unlisted kind of GPU, in GiB.")]
_GIB = 2**30


@app.command(epilog="Example: gateway engine plan gateway.yaml --gpu h100")
def plan(
    file: DeploymentsFile = SETTINGS_FILE,
    overrides: Overrides = None,
    only: Only = None,
    gpu: _GpuName = None,
    gpu_memory: _GpuMemory = None,
    model_dir: _ModelDir = None,
    work: _Work = None,
    as_json: Json = False,
) -> None:
    """Show commands, sizes and memory of engines, without building; exit 1 when one does not fit its GPU."""
    from gateway_ops.engines.planning import as_json as to_json  # noqa: PLC0415

    every = load_deployments(file, overrides or [])
    plans = _planned(file, every, only or [], _gpu(gpu, gpu_memory), model_dir or [], work)
    if as_json:
        echo_json({"plans": [to_json(one) for one in plans]})
    else:
        for one in plans:
            _show(one)
    if not plans:
        raise fail(f"{file}: no deployment has a TensorRT-LLM engine.")
    if any(one.rejected or one.fits is False for one in plans):
        raise typer.Exit(1)


@app.command(epilog="Example: gateway engine build gateway.yaml --dry-run")
def build(
    file: DeploymentsFile = SETTINGS_FILE,
    overrides: Overrides = None,
    only: Only = None,
    work: _Work = None,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Build results of other inputs or options again.")] = False,
    anyway: Annotated[bool, typer.Option("--anyway", help="Build even if the plan does not fit.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the commands without running them.")] = False,
) -> None:
    """Run the build steps that are not done yet, in TensorRT-LLM's image and on the GPUs that will serve."""
    from gateway_ops.engines.building import BuildError  # noqa: PLC0415
    from gateway_ops.engines.building import build as run  # noqa: PLC0415
    from gateway_ops.engines.machine import look_around  # noqa: PLC0415

    every = load_deployments(file, overrides or [])
    if dry_run:
        shown = _planned(file, every, only or [], None, [], work)
        for one in shown:
            _print_commands(one)
        raise typer.Exit(1 if any(one.rejected for one in shown) else 0)
    machine = look_around()
    gpu = machine.gpus[0] if machine.gpus else None
    plans = _planned(file, every, only or [], gpu, [], work)

    def judge(*names: str) -> None:
        obstacle = _obstacle(_planned(file, every, list(names), gpu, [], work))
        if obstacle is not None and not anyway:
            raise BuildError(obstacle)

    signal.signal(signal.SIGTERM, _ended)
    try:
        judge(*(only or []))
        with Progress() as progress:
            for one in plans:
                again = partial(judge, one.deployment.name)  # of a model that had to be fetched first
                run(one.deployment, one.commands, machine, progress.step, judge=again, rebuild=rebuild)
    except BuildError as error:
        raise fail(error) from None
    except KeyboardInterrupt:
        raise fail("interrupted; run the same command again to continue", 130) from None
    typer.echo("Built. `gateway repo` renders the repository that loads it.")


@app.command(epilog="Example: gateway engine check gateway.yaml")
def check(
    file: DeploymentsFile = SETTINGS_FILE,
    overrides: Overrides = None,
    only: Only = None,
    whole: Annotated[bool, typer.Option("--whole", help="Hash weights as well.")] = False,
    as_json: Json = False,
) -> None:
    """Compare built engines with their deployments and this machine; exit 1 on differences that matter."""
    from gateway_ops.engines.machine import look_around  # noqa: PLC0415
    from gateway_ops.engines.verification import mismatches  # noqa: PLC0415

    machine = look_around()
    chosen = choose_deployments(file, load_deployments(file, overrides or []), only or [])
    found = [(one.name, mismatch) for one in chosen for mismatch in mismatches(one, machine, whole=whole)]
    if as_json:
        listed = [
            {"deployment": name, "error": one.error, "where": one.where, "what": one.what, "fix": one.fix}
            for name, one in found
        ]
        echo_json({"mismatches": listed})
    else:
        for _, one in found:
            typer.echo(f"{one.where}: {'error' if one.error else 'warning'}: {one.what} {one.fix}")
        typer.echo(f"{len(chosen)} deployments, {len(found)} differences.")
    if any(one.error for _, one in found):
        raise typer.Exit(1)


def _obstacle(plans: list[EnginePlan]) -> str | None:
    """The first reason against a build, in one sentence with its remedy; None without one."""
    from gateway_ops.engines.planning import lacking_space  # noqa: PLC0415

    unfit = next((one for one in plans if one.fits is False), None)
    if unfit is not None:
        return f"{_lacking(unfit)} Build it nevertheless with --anyway."
    for folder, size, free in lacking_space(plans):
        return f"{folder}: about {_size(size)} are needed there, and {_size(free)} are free. Try it with --anyway."
    return None


def _ended(*_: object) -> None:
    raise KeyboardInterrupt


def _planned(
    file: Path,
    every: tuple[DeploymentSettings, ...],
    only: list[str],
    gpu: Gpu | None,
    model_dirs: list[str],
    work: Path | None,
) -> list[EnginePlan]:
    """Plan the chosen deployments, weighed together with the others of their file."""
    from gateway_ops.engines.planning import plan as make  # noqa: PLC0415

    names = {one.name for one in choose_deployments(file, every, only)}
    folders: dict[str, Path] = {}
    for text in model_dirs:
        name, _, folder = text.rpartition("=")
        if name and name not in {one.name for one in every}:
            raise fail(f"--model-dir {text!r}: unknown deployment {name!r}.", 2)
        if not (Path(folder) / "config.json").is_file():
            raise fail(f"--model-dir {text!r}: {folder} has no config.json.", 2)
        folders |= dict.fromkeys([name] if name else [one.name for one in every], Path(folder))
    plans = make(every, gpu=gpu, folders=folders, work=work)
    return [one for one in plans if one.deployment.name in names]


def _gpu(name: str | None, memory: float | None) -> Gpu | None:
    from gateway_ops.engines.gpus import KNOWN, Gpu, this_machine  # noqa: PLC0415

    if name is not None and name.lower() not in KNOWN and memory is None:
        raise fail(f"--gpu {name!r} is unknown: choose one of {', '.join(KNOWN)}, or add --gpu-memory.", 2)
    if memory is not None and not 0 < memory < 4096:
        raise fail("--gpu-memory: write the GiB of one GPU, such as 80.", 2)
    known = KNOWN.get((name or "").lower())
    if memory is not None:
        capability = known.capability if known is not None else ""
        return Gpu(name or f"a GPU of {memory:g} GiB", int(memory * _GIB), capability)
    if known is not None:
        return known
    found = this_machine()
    return found[0] if found else None


def _show(one: EnginePlan) -> None:
    deployment = one.deployment
    typer.echo(f"# {deployment.name}: {deployment.engine}, TensorRT-LLM {deployment.trtllm}, {one.gpus} GPU(s)")
    _print_commands(one)
    rows = _rows(one)
    console = Console(highlight=False)
    if console.is_terminal:
        table = Table("", "", "", show_edge=False, show_header=False)
        for row in rows:
            table.add_row(*(Text(cell) for cell in row))
        console.print(table)
    else:
        for name, value, note in rows:
            typer.echo(f"  {name}: {value}{f' ({note})' if note else ''}")
    typer.echo(_conclusion(one))
    typer.echo("")


def _print_commands(one: EnginePlan) -> None:
    for command in one.commands:
        before = one.seconds.get(command.step.name)
        took = f"; took {before:g} s before" if before is not None else "; time unknown"
        typer.echo(f"# {command.step.title}{took}")
        for line in command.lines():
            typer.echo(line)
    if not one.commands:
        typer.echo("# nothing to build: the engine loads the model as it is")
    for reason in one.rejected:
        typer.echo(f"error: {reason}", err=True)


def _rows(one: EnginePlan) -> list[tuple[str, str, str]]:
    found, verdict = one.estimate, one.verdict
    if found is None:
        return [("memory", "unknown", one.unknown or "")]
    rows = [("on disk: source", _size(one.download), "")]
    rows += [("on disk: checkpoint", _size(found.checkpoint), "")] if found.checkpoint else []
    rows += [("on disk: engine", _size(found.engine), "close to its weights")] if found.engine else []
    kind = one.deployment.model.quantization
    rows += [
        ("per GPU: weights", _size(found.weights), kind if kind != "none" else "as in the source"),
        ("per GPU: activations", _size(found.activations), "estimated"),
        ("per GPU: buffers", _size(found.buffers), "estimated, at most"),
        ("per GPU: CUDA", _size(found.context), "estimated"),
        ("per GPU: KV cache, a token", f"{found.kv_token / 1024:.1f} KiB", one.deployment.kv_cache.dtype),
        ("per GPU: KV cache, a sequence", _size(found.kv_sequence), f"{found.longest} tokens"),
        ("per GPU: KV cache, full load", _size(found.kv_full_load), f"{found.sequences} sequences of full length"),
    ]
    if verdict is not None and one.gpu is not None:
        where = f"on {one.gpu.name}, {_size(one.gpu.memory_bytes)}"
        rows.append(("per GPU: KV cache, as made", _size(verdict.pool), where))
    return rows


def _conclusion(one: EnginePlan) -> str:
    if one.warning is not None:
        return f"It does not run: {one.warning}."
    if one.gpu is None:
        return "Whether it fits is unknown: this machine has no GPU; name one with --gpu or --gpu-memory."
    if one.verdict is None:
        return "Whether it fits is unknown."
    if one.verdict.fits:
        return (
            f"It fits on {one.gpu.name}: {one.verdict.at_once} concurrent sequences of full length fit into its cache."
        )
    return _lacking(one)


def _lacking(one: EnginePlan) -> str:
    gpu = one.gpu.name if one.gpu is not None else "the GPU"
    if one.warning is not None or one.verdict is None:
        return f"{one.deployment.name} does not run on {gpu}: {one.warning}."
    shared = f" beside {', '.join(one.others)}" if one.others else ""
    lead = f"{one.deployment.name} does not fit on {gpu}{shared}: {_size(one.verdict.lacking)} are missing on each."
    changes = " or ".join(f"{key}: {_value(value)}" for key, value in one.fixes)
    return f"{lead} It fits with {changes}." if changes else f"{lead} No single change of its settings makes it fit."


def _value(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _size(size: int | None) -> str:
    return "unknown" if size is None else f"{size / _GIB:.2f} GiB"
