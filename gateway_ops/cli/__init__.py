"""The command ``gateway``."""

from __future__ import annotations

import os
import sys

from gateway.telemetry.early_signals import outlive_hangups


def app() -> None:
    """Run the command line."""
    _open_standard_streams()
    if sys.argv[1:2] == ["serve"]:
        outlive_hangups()  # before the imports, which take a second
    from gateway_ops.cli.root import app as command_line  # noqa: PLC0415

    command_line(prog_name="gateway")


def _open_standard_streams() -> None:
    """Put an empty file where a shell has closed one (``<&-``): else the next socket gets its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115 - open to the end
