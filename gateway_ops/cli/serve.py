"""``gateway serve``: runs the gateway in front of an existing Triton."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.telemetry.early_signals import end_with_supervisor
from gateway_ops.cli.console import fail
from gateway_ops.cli.shared_options import FoundFile

if TYPE_CHECKING:
    from gateway.settings import SettingsSource


def serve(
    file: FoundFile = None,
    workers: Annotated[
        int,
        typer.Option(
            min=1, max=256, help="Worker processes that share the port, a core each.", envvar="GATEWAY_WORKERS"
        ),
    ] = 1,
) -> None:
    """Serve the models of a settings file, or of the environment alone, until SIGTERM or Ctrl-C; SIGHUP reloads."""
    end_with_supervisor()
    if file is not None:
        os.environ["GATEWAY_CONFIG"] = str(file.absolute())  # where workers look, too
    # Imported here: the other commands need none of it, and it is the larger part of their start.
    from gateway.settings import ConfigError, SettingsSource  # noqa: PLC0415
    from gateway.workers.supervisor import WorkersError  # noqa: PLC0415

    try:
        source = SettingsSource.find()
        if workers == 1:
            from gateway.app import serve as run  # noqa: PLC0415

            run(source.load(), source)
        else:
            _supervise(source, workers)
    except (ConfigError, WorkersError, OSError) as error:
        raise fail(error) from None


def _supervise(source: SettingsSource, workers: int) -> None:
    from gateway.serving.mirror.keeper import MirrorSupervisor, wants_mirror  # noqa: PLC0415
    from gateway.telemetry.logs import set_up_logging  # noqa: PLC0415
    from gateway.workers.supervisor import Supervisor  # noqa: PLC0415

    settings = source.load()
    set_up_logging(settings.server.log_level)
    mirrors = MirrorSupervisor(source.path) if wants_mirror(settings) else None
    asyncio.run(Supervisor(settings.server, workers, mirrors).run())
