"""``gateway report``: writes a file for a bug report, and shows it before."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from gateway.text.harmless import harmless_json
from gateway_ops.cli.console import fail
from gateway_ops.cli.shared_options import ApiKey, FoundFile


def report(
    file: FoundFile = None,
    url: Annotated[str | None, typer.Option(help="URL of a running gateway, for its models.")] = None,
    log: Annotated[Path | None, typer.Option(help="Its log, for the last errors.")] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write.")] = Path("gateway-report.json"),
    api_key: ApiKey = None,
    yes: Annotated[bool, typer.Option("--yes", help="Write the file without asking.")] = False,
) -> None:
    """Collect versions, settings without secrets, capabilities and errors; show them, and write them if you agree."""
    from gateway.settings import SettingsSource  # noqa: PLC0415 - the other commands need none of it
    from gateway_ops.cli.version import versions  # noqa: PLC0415
    from gateway_ops.report.fault_report import fault_report  # noqa: PLC0415

    found = fault_report(versions(), SettingsSource.find(file), url, api_key, log)
    text = harmless_json(json.dumps(found, indent=2, ensure_ascii=False))
    typer.echo(text)
    if not yes:
        if not sys.stdin.isatty():
            typer.echo("nothing was written: without a terminal give --yes", err=True)
            return
        typer.echo(f"\nOnly this text goes into {output}. Remove from the file what others must not see.", err=True)
        if not typer.confirm("Write it?", err=True):
            return
    try:
        with output.open("x", encoding="utf-8", errors="replace") as written:
            written.write(f"{text}\n")
    except OSError as error:
        raise fail(f"cannot write {output}: {error.strerror}") from None
    typer.echo(f"Written to {output}.", err=True)
