"""Arguments and options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

LOCAL_URL: Final = "http://127.0.0.1:9000"
SETTINGS_FILE: Final = Path("gateway.yaml")

ServerUrl = Annotated[str, typer.Argument(help="Base URL of an OpenAI-compatible server, with or without /v1.")]
ApiKey = Annotated[str | None, typer.Option(help="Bearer key of the server.", envvar="GATEWAY_API_KEY")]
FoundFile = Annotated[
    Path | None, typer.Argument(help="Settings file; else GATEWAY_CONFIG, else gateway.yaml.", show_default=False)
]
DeploymentsFile = Annotated[Path, typer.Argument(help="Settings file with `deployments`.")]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", help="key:value or deployment/key:value, as for fill_template.py.")
]
Only = Annotated[list[str] | None, typer.Option("--only", help="Deployments; all when not given.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
JsonFile = Annotated[Path | None, typer.Option("--output", help="Write the JSON object to this file too.")]
