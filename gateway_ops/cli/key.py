"""``gateway key``: a key with a name, for the file of auth.keys_file."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from typing import Annotated

import typer

from gateway_ops.cli.console import fail
from gateway_ops.cli.shared_options import Json


def key(
    name: Annotated[str, typer.Argument(help="Name of the key, shown in the log and the metrics.")],
    as_json: Json = False,
) -> None:
    """Generate a key, and print it once with its line for the keys file; no file is written."""
    from gateway.settings.auth_settings import NAME_FORM  # noqa: PLC0415 - the other commands need none of it

    if not re.fullmatch(NAME_FORM, name):
        raise fail("a name has letters, digits, _, -, @ and . only, at most 64, and begins with a letter, a digit or _")
    made = f"gw-{secrets.token_urlsafe(32)}"
    digest = f"sha256:{hashlib.sha256(made.encode()).hexdigest()}"
    if as_json:
        typer.echo(json.dumps({"name": name, "key": made, "hash": digest}))
        return
    typer.echo(f"The key of {name}, which is shown this once:\n\n    {made}\n")
    typer.echo(f"Its line under `keys:` in the file of auth.keys_file:\n\n    - {{name: '{name}', hash: '{digest}'}}")
