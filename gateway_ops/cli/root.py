"""The command line: its commands by panels, an example of each, and former forms of some."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from gateway_ops.cli.bench import bench
from gateway_ops.cli.chat import chat
from gateway_ops.cli.check import check
from gateway_ops.cli.compare import compare
from gateway_ops.cli.console import echo
from gateway_ops.cli.engine import app as engine
from gateway_ops.cli.examples import examples
from gateway_ops.cli.key import key
from gateway_ops.cli.launch import launch
from gateway_ops.cli.models import models
from gateway_ops.cli.plan_fleet import plan_fleet
from gateway_ops.cli.record import record, replay
from gateway_ops.cli.repo import repo
from gateway_ops.cli.report import report
from gateway_ops.cli.serve import serve
from gateway_ops.cli.top import top
from gateway_ops.cli.up import down, up

# By panel of the help: each command with an example of it.
_PANELS: Final[dict[str, dict[Callable[..., None], str]]] = {
    "Run": {
        up: "up --detach",
        down: "down --port 9100",
        serve: "serve gateway.yaml --workers 4",
        launch: "launch gateway.yaml --dry-run",
        top: "top http://127.0.0.1:9000 --once",
        key: "key alice",
        report: "report gateway.yaml --log gateway.log",
    },
    "Talk": {
        chat: "chat -m 'What is the capital of France?'",
        models: "models https://models.example.com",
    },
    "Test": {
        check: "check gateway.yaml",
        bench: "bench --streams 32 --duration 60",
        compare: "compare llama3 llama3-int4 --sample 200",
        record: "record 127.0.0.1:8001 triton.jsonl --redact",
        replay: "replay triton.jsonl --at-once",
    },
    "Build": {
        examples: "examples mine",
        plan_fleet: "plan-fleet --rate 50 --bench bench.json",
        repo: "repo gateway.yaml -o repository",
    },
}
# Former forms, which are still accepted.
_FORMER: Final = {("version",): ["--version"], ("key", "new"): ["key"], ("repo", "build"): ["repo"]}
_TAKE_A_FILE: Final = ("repo", "launch", "engine")
_FILE_OPTION: Final = re.compile(r"^(--file(=|$)|-f)")


class GatewayCommands(TyperGroup):
    """The commands, which are also found by their former forms."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse arguments in a present or a former form; a warning shows the present one."""
        present = _present(args)
        if present != args and not ctx.resilient_parsing:
            echo(f"warning: a former form, which will be removed; write: gateway {shlex.join(present)}", err=True)
        return super().parse_args(ctx, present)


def _present(words: list[str]) -> list[str]:
    """The present form of a command line."""
    for former, form in _FORMER.items():
        if tuple(words[: len(former)]) == former:
            words = [*form, *words[len(former) :]]
    if not words or words[0] not in _TAKE_A_FILE:
        return words
    return [file for word in words if (file := _FILE_OPTION.sub("", word)) or not _FILE_OPTION.match(word)]


app = typer.Typer(
    name="gateway",
    cls=GatewayCommands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for _panel, _commands in _PANELS.items():
    for _command, _example in _commands.items():
        app.command(rich_help_panel=_panel, epilog=f"Example: gateway {_example}")(_command)
app.add_typer(engine, name="engine", rich_help_panel="Build")


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the versions of all parts and exit.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --version: print one JSON object.")] = False,
) -> None:
    """An OpenAI-compatible API for Triton Inference Server and TensorRT-LLM.

    To try it: gateway up. For your own Triton: gateway examples FOLDER, then gateway check and gateway serve.
    """
    if version:
        from gateway_ops.cli.version import show_versions  # noqa: PLC0415 - the commands need none of it

        show_versions(as_json=as_json)
        raise typer.Exit
    if context.invoked_subcommand is None:
        context.fail("Missing command.")
