"""``gateway check``: mistakes in a settings file or a model repository, or the abilities of an endpoint."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from gateway_ops.cli.console import echo_json, fail
from gateway_ops.cli.shared_options import SETTINGS_FILE, ApiKey, Json

_FILE = str(SETTINGS_FILE)


def check(  # noqa: PLR0913, PLR0917 - one for each option
    target: Annotated[
        str,
        typer.Argument(
            help="A settings file, a model repository, host:port of Triton's gRPC endpoint, or the URL of a gateway."
        ),
    ] = _FILE,
    model: Annotated[str | None, typer.Option(help="Triton model (ensemble); served model with --conformance.")] = None,
    task: Annotated[str | None, typer.Option(help="generate, embed, rerank or classify (as configured).")] = None,
    tokenizer: Annotated[Path | None, typer.Option(help="Tokenizer folder of a model that does not generate.")] = None,
    api_key: ApiKey = None,
    conformance: Annotated[bool, typer.Option("--conformance", help="Test the conformance to OpenAI's API.")] = False,
    timeout: Annotated[float, typer.Option(min=1, max=600, help="Seconds per response, with --conformance.")] = 60.0,
    offline: Annotated[bool, typer.Option("--offline", help="Do not connect to the Tritons of a file.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show every parameter, or every check.")] = False,
    as_json: Json = False,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON schema of settings files.")] = False,
) -> None:
    """Report every mistake in a settings file or repository, or show what an endpoint supports; exit 1 on errors."""
    if schema:
        from gateway.settings import Settings  # noqa: PLC0415

        described = Settings.model_json_schema()
        described["anyOf"] = [{"required": [key]} for key in (*described.pop("required"), "deployments")]
        echo_json(described)
        return
    # Imported here: the other commands need none of it.
    if conformance:
        from gateway_ops.cli.conformance import show_conformance  # noqa: PLC0415

        if not target.startswith(("http://", "https://")):
            raise fail("--conformance needs the URL of a server: http://... or https://...")
        try:
            show_conformance(target, model, api_key, timeout, as_json=as_json, verbose=verbose)
        except KeyboardInterrupt:
            raise fail("interrupted", 130) from None
        return
    from gateway.settings.model_settings import Task  # noqa: PLC0415
    from gateway_ops.check import report  # noqa: PLC0415
    from gateway_ops.cli.check_display import show  # noqa: PLC0415

    if task is not None and task not in get_args(Task):
        raise fail(f"--task {task}: it is one of {', '.join(get_args(Task))}")

    if target == _FILE and not Path(target).exists():
        targets = "a settings file, a model repository, HOST:PORT of a Triton's gRPC, or the URL of a gateway"
        raise fail(f"there is no {_FILE} here: name {targets}")
    logging.getLogger("gateway").addHandler(logging.NullHandler())  # findings say it
    try:
        asked: dict[str, Any] = {"model": model or "ensemble", "task": task, "tokenizer": tokenizer}
        found = asyncio.run(report.check(target, **asked, api_key=api_key, offline=offline))
    except KeyboardInterrupt:
        raise fail("interrupted", 130) from None
    if as_json:
        echo_json(found.as_json())
    else:
        show(found.as_json(), verbose=verbose)
    if found.errors:
        raise typer.Exit(1)
