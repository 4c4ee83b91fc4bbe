"""``gateway check``: mistakes in a settings file or a model repository, or the abilities of an endpoint."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from itertools import groupby
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gateway_ops.cli.console import fail

# Each in the order of what is shown first.
_STYLES = {"error": "bold red", "warning": "yellow", "info": "dim"}
_HOW = {"impossible": "red", "emulated": "cyan", "native": "green"}


def check(
    target: Annotated[
        str,
        typer.Argument(
            help="A settings file, a model repository, host:port of a Triton's gRPC endpoint, or the URL of a gateway."
        ),
    ] = "gateway.yaml",
    model: Annotated[
        str | None, typer.Option(help="The Triton model, ensemble unless said; with --conformance the served one.")
    ] = None,
    api_key: Annotated[
        str | None, typer.Option(help="Bearer key, when the target is a URL.", envvar="GATEWAY_API_KEY")
    ] = None,
    conformance: Annotated[
        bool, typer.Option("--conformance", help="Ask any server at a URL whether it holds what OpenAI's API promises.")
    ] = False,
    timeout: Annotated[float, typer.Option(min=1, max=600, help="Seconds for an answer, with --conformance.")] = 60.0,
    offline: Annotated[bool, typer.Option("--offline", help="Skip the Tritons that a file names.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON schema of settings files.")] = False,
) -> None:
    """Explain every mistake in a settings file or repository, or show what an endpoint can do; exit 1 on errors."""
    if schema:
        from gateway.config import Settings  # noqa: PLC0415

        described = Settings.model_json_schema()
        described["anyOf"] = [{"required": [key]} for key in (*described.pop("required"), "deployments")]
        typer.echo(json.dumps(described, indent=2))
        return
    # Imported here: the other commands need none of it.
    if conformance:
        from gateway_ops.cli.conformance import show_conformance  # noqa: PLC0415

        if not target.startswith(("http://", "https://")):
            raise fail("--conformance takes the URL of a server: http://... or https://...")
        try:
            show_conformance(target, model, api_key, timeout, as_json=as_json)
        except KeyboardInterrupt:
            raise fail("interrupted", 130) from None
        return
    from gateway_ops.checking import report  # noqa: PLC0415

    logging.getLogger("gateway").addHandler(logging.NullHandler())  # findings say it
    try:
        found = asyncio.run(report.check(target, model=model or "ensemble", api_key=api_key, offline=offline))
    except KeyboardInterrupt:
        raise fail("interrupted", 130) from None
    if as_json:
        typer.echo(json.dumps(found.as_json(), indent=2, ensure_ascii=False))
    else:
        values = found.as_json()
        console = Console(highlight=False)
        if console.is_terminal:
            _show_tables(console, values)
        else:
            _print_lines(values)
    if found.errors:
        raise typer.Exit(1)


def _print_lines(values: dict[str, Any]) -> None:
    """Print one line for each finding, as compilers do, the gravest first; then what each model can do, in short."""
    for finding in _gravest_first(values["findings"]):
        typer.echo(f"{finding['where']}: {finding['severity']}: {finding['what']} {finding['fix']}".rstrip())
    for name, model in values["models"].items():
        typer.echo(_headline(name, model))
        for how, parameters, note in _abilities(model["capabilities"]):
            typer.echo(f"  {how}: {parameters}{note and f': {note}'}")
    typer.echo(_summary(values))


def _show_tables(console: Console, values: dict[str, Any]) -> None:
    for severity, findings in groupby(_gravest_first(values["findings"]), key=lambda each: each["severity"]):
        table = Table("where", "what", "what to do", show_edge=False, title_justify="left")
        table.title = Text(severity, _STYLES[severity])
        for finding in findings:
            table.add_row(*(Text(finding[key]) for key in ("where", "what", "fix")))
        console.print(table)
        console.print()
    for name, model in values["models"].items():
        console.print(Text(_headline(name, model), "bold"))
        if model["capabilities"]:
            table = Table("served", "parameters", "how", show_edge=False)
            for how, parameters, note in _abilities(model["capabilities"]):
                table.add_row(Text(how, _HOW[how]), Text(parameters), Text(note))
            console.print(table)
        console.print()
    console.print(Text(_summary(values), "green" if values["ok"] else "bold red"))


def _gravest_first(findings: list[dict[str, str]]) -> list[dict[str, str]]:
    return sorted(findings, key=lambda finding: list(_STYLES).index(finding["severity"]))


def _abilities(capabilities: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """What a model cannot do, what the gateway does for it, and what it does itself.

    Yields:
        how parameters are served, those that have this and the note in common, and the note; native ones have none.
    """
    groups: dict[tuple[str, str], list[str]] = {}
    for parameter, capability in sorted(capabilities.items()):
        how = capability["how"]
        note = "" if how == "native" else capability["note"]
        groups.setdefault((how, note), []).append(f"{parameter}{_limit(capability)}")
    for (how, note), parameters in sorted(groups.items(), key=lambda group: list(_HOW).index(group[0][0])):
        yield how, ", ".join(parameters), note


def _headline(name: str, model: dict[str, Any]) -> str:
    path = f"the {model['path']} path" if model["path"] else "not discovered yet"
    context = f", {model['max_seq_len']} tokens of context" if model["max_seq_len"] else ""
    return f"{name}: {path} to {model['triton_model']}{context}: {model['reason']}"


def _limit(capability: dict[str, Any]) -> str:
    return "" if capability["limit"] is None else f" up to {capability['limit']}"


def _summary(values: dict[str, Any]) -> str:
    counts = dict.fromkeys(("error", "warning"), 0)
    for finding in values["findings"]:
        if finding["severity"] in counts:
            counts[finding["severity"]] += 1
    said = [f"{count} {severity}{'s' if count > 1 else ''}" for severity, count in counts.items() if count]
    return ", ".join(said) or "Nothing is wrong."
