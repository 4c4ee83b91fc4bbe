"""The command line: its commands and common options."""

from __future__ import annotations

from typing import Annotated

import typer

from gateway_ops.cli.bench import bench
from gateway_ops.cli.chat import chat
from gateway_ops.cli.check import check
from gateway_ops.cli.compare import compare
from gateway_ops.cli.engine import app as engine
from gateway_ops.cli.examples import examples
from gateway_ops.cli.key import app as key
from gateway_ops.cli.launch import launch
from gateway_ops.cli.models import models
from gateway_ops.cli.plan_fleet import plan_fleet
from gateway_ops.cli.record import record, replay
from gateway_ops.cli.repo import app as repo
from gateway_ops.cli.report import report
from gateway_ops.cli.serve import serve
from gateway_ops.cli.top import top
from gateway_ops.cli.up import down, up
from gateway_ops.cli.version import gateway_version, version

app = typer.Typer(
    name="gateway",
    help="An OpenAI-compatible API for Triton Inference Server and TensorRT-LLM.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command()(up)
app.command()(down)
app.command()(launch)
app.command()(serve)
app.command()(check)
app.command()(chat)
app.command()(models)
app.command()(top)
app.command()(bench)
app.command()(compare)
app.add_typer(engine, name="engine")
app.command()(examples)
app.command()(plan_fleet)
app.add_typer(repo, name="repo")
app.add_typer(key, name="key")
app.command()(version)
app.command()(report)
app.command()(record)
app.command()(replay)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"gateway {gateway_version()}")
        raise typer.Exit


@app.callback()
def _root(
    _version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """An OpenAI-compatible API for Triton Inference Server and TensorRT-LLM."""
