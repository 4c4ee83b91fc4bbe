"""``gateway serve``: the gateway alone, in front of a Triton that is already there."""

from __future__ import annotations

from gateway.cli.console import fail
from gateway.deployment.gateway_process import end_with_supervisor


def serve() -> None:
    """Serve the models of gateway.yaml, or of the environment alone, until SIGTERM or Ctrl-C; SIGHUP reloads."""
    end_with_supervisor()
    # Imported here: the other commands need none of it, and it is the larger part of their start.
    from gateway.app import serve as run  # noqa: PLC0415
    from gateway.config import ConfigError, SettingsSource  # noqa: PLC0415

    try:
        source = SettingsSource.find()
        run(source.load(), source)
    except (ConfigError, OSError) as error:
        raise fail(error) from None
