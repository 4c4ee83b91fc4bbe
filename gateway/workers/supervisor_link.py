"""A worker's side of the connection to its supervisor."""

from __future__ import annotations

import asyncio
import functools
import json
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from gateway.generation.health import EngineCondition
from gateway.http.access.shared_buckets import SharedBuckets
from gateway.serving.fleet.shared_counts import SharedCounts
from gateway.serving.registry import Registry
from gateway.telemetry.supervision import keep_running
from gateway.text.tokens.token_cache import TokenCache

_REPORT_S: Final = 0.1
# One worker asks Triton for the health of its models. The others ask when that worker saw a change, and now and then
# in case that worker hangs. After failed requests or a lost connection any worker asks immediately.
_LEADER_POLL_S: Final = 2.0
_FOLLOWER_POLL_S: Final = 60.0

Readiness = Mapping[str, EngineCondition]


class SupervisorLink:
    """The connection of a worker to the other workers, through their supervisor.

    Attributes:
        sockets: the worker's listening sockets.
        internal_sockets: the sockets of the internal port.
        poll_s: seconds between its health checks of Triton.
        counts: shared counts of endpoints.
        buckets: shared buckets of the callers' limits.
        token_cache: shared cache of token ids; None without one.
        mirror_socket: path of the mirror process's socket; None without mirrors.
        replaces: whether this worker replaces one that died, so that connections wait for it.
    """

    def __init__(
        self,
        index: int,
        control: socket.socket,
        sockets: Sequence[socket.socket],
        internal_sockets: Sequence[socket.socket],
        counts: SharedCounts,
        buckets: SharedBuckets,
        token_cache: TokenCache | None,
        mirror_socket: Path | None = None,
    ) -> None:
        """Make one; it says nothing before ``serving``.

        Args:
            index: of the worker, from 0.
            control: connection to the supervisor: one JSON object a line, both ways.
            sockets: that it listens on.
            internal_sockets: those of the internal port; none without one.
            counts: what all of them know of endpoints.
            buckets: of the limits of keys, which all of them share.
            token_cache: of all of them; None: nothing is stored.
            mirror_socket: where copies of requests are taken; None: nowhere.
        """
        self.token_cache = token_cache
        self.mirror_socket = mirror_socket
        self.replaces = False
        self.counts = counts
        self.buckets = buckets
        self.sockets: Sequence[socket.socket] = list(sockets)
        self.internal_sockets: Sequence[socket.socket] = list(internal_sockets)
        self.poll_s = _FOLLOWER_POLL_S if index else _LEADER_POLL_S
        self._control = control
        self._all: Readiness | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def readiness(self, own: Readiness) -> Readiness:
        """The condition of each model by all workers."""
        if self._all is None:
            starting = EngineCondition(ready=False, state="loading", reason="the other workers are starting")
            return {name: starting if each.ready else each for name, each in own.items()}
        return {name: self._all.get(name, each) for name, each in own.items()}

    async def serving(self, registry: Registry) -> None:
        """Begin to report readiness and to receive that of the others; connections are accepted soon.

        Args:
            registry: the worker's served models.
        """
        reader, writer = await asyncio.open_connection(sock=self._control)
        works = {
            "the worker's report": functools.partial(self._report, registry, writer),
            "the reader of workers' reports": functools.partial(self._listen, registry, reader),
        }
        self._tasks = [asyncio.create_task(keep_running(what, work)) for what, work in works.items()]

    def fail(self, reason: str) -> None:
        """Report why this worker cannot serve; before ``serving`` only."""
        self._control.setblocking(True)
        self._control.sendall(_line({"error": reason}))

    async def _report(self, registry: Registry, writer: asyncio.StreamWriter) -> None:
        said: Readiness | None = None
        while True:
            now = registry.readiness()
            if now != said:
                said = now
                writer.write(_line({"readiness": now}))
                await writer.drain()
            await asyncio.sleep(_REPORT_S)

    async def _listen(self, registry: Registry, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            message = json.loads(line)
            self._all = {name: EngineCondition(*each) for name, each in message["readiness"].items()}
            if message["check"]:
                for model in registry:
                    model.backend.check()


def _line(message: Mapping[str, object]) -> bytes:
    return json.dumps(message).encode() + b"\n"
