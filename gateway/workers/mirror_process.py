"""The process of mirrored requests: ``python -m gateway.workers.mirror_process``, started by a ``MirrorKeeper`` only.

It is a gateway of the second models that listens to no client. What it spends is taken from no client's answer: it has
an event loop of its own, and less of the CPU than the gateway where there is not enough for both.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import uvloop

from gateway.app import create_app
from gateway.config import (
    AuthSettings,
    ConfigError,
    ModelSettings,
    ServerSettings,
    Settings,
    SettingsSource,
    StateSettings,
    TelemetrySettings,
)
from gateway.early_signals import end_with_parent, outlive_hangups
from gateway.mirroring.in_process import InProcess
from gateway.mirroring.receiver import Receiver
from gateway.telemetry.logs import set_up_logging
from gateway.web.access_log import ACCESS_LOG
from gateway.web.sse import COMMENT

_log = logging.getLogger(__name__)
_NICE = 10
_RELOAD_S = 1.0


@dataclasses.dataclass(frozen=True, slots=True)
class MirrorSource(SettingsSource):
    """A source of the gateway's settings, of which it gives those of the second models.

    Attributes:
        latest: all models of the settings that were read last, by their names, as its only item.
    """

    latest: list[Mapping[str, ModelSettings]] = dataclasses.field(default_factory=lambda: [{}])

    def load(self) -> Settings:
        """Read everything anew, as the base does."""
        settings = SettingsSource(self.path, self.environment).load()
        self.latest[0] = {model.name: model for model in settings.models}
        return second_models(settings)


def second_models(settings: Settings) -> Settings:
    """The settings of a gateway that serves the second models, and them alone: without keys, state and traces."""
    wanted = {model.mirror.to for model in settings.models if model.mirror is not None}
    return settings.model_copy(
        update={
            "models": tuple(
                model.model_copy(update={"mirror": None}) for model in settings.models if model.name in wanted
            ),
            "splits": {},
            "server": ServerSettings(
                memory=settings.server.memory,
                reload_s=settings.server.reload_s or _RELOAD_S,
                log_level=settings.server.log_level,
            ),
            "auth": AuthSettings(),
            "state": StateSettings(store="none"),
            "telemetry": TelemetrySettings(),
        }
    )


def main(arguments: Sequence[str]) -> int:
    """Take copies until SIGTERM; the exit status.

    Args:
        arguments: the keeper's process id, the path of the socket, and that of the settings file if there is one.
    """
    outlive_hangups()
    parent, socket, *file = arguments
    end_with_parent(int(parent), signal.SIGKILL)
    os.nice(_NICE)
    found = SettingsSource.find(Path(file[0]) if file else None)
    source = MirrorSource(found.path, found.environment)
    try:
        settings = source.load()
        set_up_logging(settings.server.log_level)
        for name in (ACCESS_LOG.name, "gateway.app"):  # copies are no requests of clients, and no door is open here
            logging.getLogger(name).setLevel(logging.ERROR)
        uvloop.run(_serve(settings, source, Path(socket)))
    except ConfigError as error:
        _log.error("requests are not mirrored: %s", error, extra={"event": "mirror_not_started"})
        return 1
    return 0


async def _serve(settings: Settings, source: MirrorSource, socket: Path) -> None:
    app = create_app(settings, source=source)

    async with app.router.lifespan_context(app):
        serving = asyncio.ensure_future(Receiver(InProcess(app, COMMENT).ask, lambda: source.latest[0]).serve(socket))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, serving.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await serving


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
