"""``gateway down``."""

from __future__ import annotations

from typing import Annotated

import typer

from gateway_ops.local_stack.state import RunFolder

_DEADLINE_S = 45.0  # Triton and the gateway have deadlines of their own, which fit in


def down(
    port: Annotated[
        int, typer.Option(help="The gateway's port, as given to gateway up.", envvar="GATEWAY_PORT")
    ] = 9000,
) -> None:
    """Stop what gateway up started on a port, and wait until it is gone."""
    state = RunFolder(port).read()
    if RunFolder(port).stop(_DEADLINE_S):
        whole = state is None or state.url
        typer.echo(f"The gateway on port {port} and its Triton are stopped." if whole else "Triton is stopped.")
    else:
        typer.echo(f"Nothing to stop: no gateway is up on port {port}.")
