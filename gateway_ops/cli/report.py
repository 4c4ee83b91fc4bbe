"""``gateway report``: one file that a report of a fault needs, shown before it is written."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from gateway.harmless import harmless
from gateway_ops.cli.console import fail
from gateway_ops.cli.version import versions


def report(
    file: Annotated[
        Path | None,
        typer.Argument(help="Settings file; GATEWAY_CONFIG, else gateway.yaml if it is there.", show_default=False),
    ] = None,
    url: Annotated[str | None, typer.Option(help="A running gateway, for its models and what they can.")] = None,
    log: Annotated[Path | None, typer.Option(help="Its log, for the last errors.")] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write.")] = Path("gateway-report.json"),
    api_key: Annotated[
        str | None, typer.Option(help="Bearer key of the gateway.", envvar="GATEWAY_API_KEY", show_envvar=True)
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Write it without being asked.")] = False,
) -> None:
    """Pack versions, settings without secrets, capabilities and last errors, show them, and write them if you agree."""
    from gateway.config import SettingsSource  # noqa: PLC0415 - the other commands need none of it
    from gateway_ops.report.fault_report import fault_report  # noqa: PLC0415

    found = fault_report(versions(), SettingsSource.find(file), url, api_key, log)
    text = json.dumps(found, indent=2, ensure_ascii=False)
    typer.echo(harmless(text))
    if not yes:
        if not sys.stdin.isatty():
            typer.echo("nothing was written: --yes writes it without a terminal", err=True)
            return
        typer.echo(f"\nThis, and no more, goes into {output}. Hide in it what nobody should see.", err=True)
        if not typer.confirm("Write it?", err=True):
            return
    try:
        with output.open("x", encoding="utf-8", errors="replace") as written:
            written.write(f"{text}\n")
    except OSError as error:
        raise fail(f"cannot write {output}: {error.strerror}") from None
    typer.echo(f"Written to {output}.", err=True)
