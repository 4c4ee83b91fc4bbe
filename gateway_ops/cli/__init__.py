"""The command ``gateway``."""

from __future__ import annotations

import sys

from gateway.hangups import outlive_hangups


def app() -> None:
    """Run the command line."""
    if sys.argv[1:2] == ["serve"]:
        outlive_hangups()  # before the imports, which take a second
    from gateway_ops.cli.root import app as command_line  # noqa: PLC0415

    command_line(prog_name="gateway")
