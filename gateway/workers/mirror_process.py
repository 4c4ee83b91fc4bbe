"""The process of mirrored requests: ``python -m gateway.workers.mirror_process``, started only by a ``MirrorKeeper``.

It is a gateway of the second models that listens to no client. It has an event loop of its own, and less of the CPU
than the gateway where there is not enough for both, so that it slows no client's answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any, Final

import uvloop

from gateway.app import create_app
from gateway.http.access_log import ACCESS_LOG
from gateway.http.sse import COMMENT
from gateway.serving.comparison.answer_forms import LONGEST_ANSWER, Failure, Outcome, WholeAnswer, outcome_of
from gateway.serving.mirror.receiver import MirrorReceiver
from gateway.settings import (
    AuthSettings,
    ConfigError,
    ModelSettings,
    ServerSettings,
    Settings,
    SettingsSource,
    StateSettings,
    TelemetrySettings,
)
from gateway.telemetry.early_signals import outlive_hangups
from gateway.telemetry.logs import set_up_logging
from gateway.text.untrusted_work import end_with_parent

_log = logging.getLogger(__name__)
_NICE = 10
_RELOAD_S = 1.0

_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]
Application = Callable[[_Message, _Receive, _Send], Awaitable[None]]

_HEADERS: Final = [(b"host", b"localhost"), (b"content-type", b"application/json")]


@dataclasses.dataclass(frozen=True, slots=True)
class MirrorSource(SettingsSource):
    """A source of the gateway's settings that gives the settings of the second models.

    Attributes:
        latest: all models of the last read settings, by their names, as its only item.
    """

    latest: list[Mapping[str, ModelSettings]] = dataclasses.field(default_factory=lambda: [{}])

    def load(self) -> Settings:
        """Read the settings again, as the base does."""
        settings = SettingsSource(self.path, self.environment).load()
        self.latest[0] = {model.name: model for model in settings.models}
        return second_models(settings)


def second_models(settings: Settings) -> Settings:
    """Make the settings of a gateway of the second models, without keys, state and traces."""
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


class InProcessClient:
    """Sends requests to an ASGI application without a connection.

    Args:
        app: the application, started.
    """

    def __init__(self, app: Application) -> None:
        self._app = app

    async def ask(self, path: str, body: bytes, timeout_s: float) -> Outcome:
        """Send a request; a failure is an outcome too.

        Args:
            path: path of the endpoint.
            body: body of the request.
            timeout_s: seconds for the whole response.
        """
        call = _Call(body)
        began = time.perf_counter()
        task = asyncio.ensure_future(self._app(_scope(path, len(body)), call.receive, call.send))
        try:
            done, _ = await asyncio.wait((task,), timeout=timeout_s)
        finally:
            call.left.set()
            task.cancel()
        if not done:
            await asyncio.wait((task,))
            return Failure("timeout")
        if not task.cancelled():
            task.exception()  # a defect, which has been logged and reported
        if call.size > LONGEST_ANSWER:
            return Failure("a response of more than 16 MiB")
        if not call.ended:
            return Failure("connection lost")
        outcome = outcome_of(path, call.status, b"".join(call.parts), streamed=call.streamed)
        if isinstance(outcome, WholeAnswer):
            outcome.first_s = None if call.first is None or not call.streamed else call.first - began
            outcome.whole_s = call.last - began
        return outcome


class _Call:
    """One request: its channel to the application, and what came by it."""

    def __init__(self, body: bytes) -> None:
        self.status = 0
        self.streamed = self.ended = False
        self.parts: list[bytes] = []
        self.size = 0
        self.first: float | None = None
        self.last = 0.0
        self.left = asyncio.Event()
        self._body: bytes | None = body

    async def receive(self) -> _Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: _Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.streamed = dict(message["headers"]).get(b"content-type", b"").startswith(b"text/event-stream")
            return
        data = message.get("body", b"")
        self.last = time.perf_counter()
        if data and data != COMMENT and self.first is None:
            self.first = self.last
        self.size += len(data)
        if self.size <= LONGEST_ANSWER:
            self.parts.append(data)
        self.ended = not message.get("more_body", False)


def _scope(path: str, size: int) -> _Message:
    headers = [*_HEADERS, (b"content-length", b"%d" % size)]
    return {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http",
        "path": path, "raw_path": path.encode(), "root_path": "", "query_string": b"", "headers": headers,
        "client": ("127.0.0.1", 0), "server": ("127.0.0.1", 0),
    }  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    """Receive copies of requests until SIGTERM; returns the exit status.

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
        for name in (ACCESS_LOG.name, "gateway.app"):  # copies are not requests of clients, and no port is open here
            logging.getLogger(name).setLevel(logging.ERROR)
        uvloop.run(_serve(settings, source, Path(socket)))
    except ConfigError as error:
        _log.error("requests are not mirrored: %s", error, extra={"event": "mirror_not_started"})
        return 1
    return 0


async def _serve(settings: Settings, source: MirrorSource, socket: Path) -> None:
    app = create_app(settings, source=source)

    async def take_copies() -> None:
        await app.state.registry.wait_ready()  # else the second model would reject the first copies
        await MirrorReceiver(InProcessClient(app).ask, lambda: source.latest[0]).serve(socket)

    async with app.router.lifespan_context(app):
        serving = asyncio.ensure_future(take_copies())
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, serving.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await serving


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
