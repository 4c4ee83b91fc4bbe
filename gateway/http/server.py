"""uvicorn's server with a graceful shutdown in stages, and a second port that stays open until the end."""

from __future__ import annotations

import asyncio
import functools
import logging
import signal
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from gateway.http.certificates import FileBackedValue
from gateway.http.http_protocol import HttpLimits
from gateway.http.listening import with_duplicates
from gateway.http.listening_tls import TlsAcceptor
from gateway.http.shutdown import ShutdownState

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServerTls:
    """TLS on the server's port.

    Attributes:
        contexts: TLS contexts of new connections.
        bounds: bounds of connections.
    """

    contexts: FileBackedValue[ssl.SSLContext]
    bounds: HttpLimits


@dataclass(frozen=True, slots=True)
class ServerStages:
    """The stages of a server's start and graceful shutdown.

    Attributes:
        lame_duck_s: seconds of service after SIGTERM, before connections are rejected.
        shutdown_s: seconds for responses to end after that.
        started: called when connections are accepted.
        abort: ends all responses with an error.
        idle: waits for work that no connection waits for.
    """

    lame_duck_s: float
    shutdown_s: float
    started: Callable[[], None]
    abort: Callable[[], None]
    idle: Callable[[], Awaitable[None]]


def _protocols(config: uvicorn.Config, state: ServerState) -> Callable[[], asyncio.Protocol]:
    """Makes protocols as uvicorn does."""
    http: Any = config.http_protocol_class
    return functools.partial(http, config=config, server_state=state, app_state={})


class InternalPort:
    """A port beside the server's own, for operators.

    Args:
        config: uvicorn's settings of its application and protocol.
        sockets: the listening sockets.
    """

    def __init__(self, config: uvicorn.Config, sockets: Sequence[socket.socket]) -> None:
        self._config = config
        self._sockets = sockets
        self._state = ServerState()
        self._servers: list[asyncio.Server] = []

    async def open(self) -> None:
        """Accept connections."""
        self._config.load()
        make = _protocols(self._config, self._state)
        loop = asyncio.get_running_loop()
        self._servers = [
            await loop.create_server(make, sock=each, backlog=self._config.backlog) for each in self._sockets
        ]

    def close(self) -> None:
        """Close the port and its connections."""
        for server in self._servers:
            server.close()
        for connection in list(self._state.connections):
            connection.transport.close()


class Server(uvicorn.Server):
    """A server with a graceful shutdown in stages.

    It fails its readiness, then rejects connections, then ends running responses with an error. Without SIGTERM's
    notice a client or a load balancer would go on to connect to a closed port. Each further signal skips to the next
    stage. Ctrl-C begins with the second stage, without notice to clients.

    Args:
        config: uvicorn's settings.
        stages: the stages of start and shutdown.
        shutdown_state: begins with the shutdown.
        tls: TLS for clients; None without it.
        internal: a second, open port; closed at the end.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        stages: ServerStages,
        shutdown_state: ShutdownState,
        tls: ServerTls | None = None,
        internal: InternalPort | None = None,
    ) -> None:
        super().__init__(config)
        self._tls = tls
        self._acceptor: TlsAcceptor | None = None
        self._stages = stages
        self._shutdown_state = shutdown_state
        self._internal = internal
        self._reject_at = 0.0
        self._aborted = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections."""
        if self._tls is None:
            await super().startup(with_duplicates(sockets or ()))
        else:
            await super().startup([])
            http = _protocols(self.config, self.server_state)
            connections = self.server_state.connections
            self._acceptor = TlsAcceptor(sockets or (), self._tls.contexts, http, connections, self._tls.bounds)
            self._acceptor.open()
        self._stages.started()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handle a signal: begin the shutdown, or skip to its next stage."""
        del frame
        self._captured_signals.append(sig)
        loop = asyncio.get_running_loop()
        if self._aborted:
            self.force_exit = self.force_exit or sig == signal.SIGINT
        elif self.should_exit:
            self._aborted = True
            loop.call_soon_threadsafe(self._stages.abort)
        elif self._shutdown_state.begun or sig == signal.SIGINT or not self._stages.lame_duck_s:
            self.should_exit = True
        else:
            self._reject_at = loop.time() + self._stages.lame_duck_s
            self._shutdown_state.begin()
            loop.call_soon_threadsafe(self._tell_connections)

    async def on_tick(self, counter: int) -> bool:
        """Check whether it is time to reject connections."""
        if self._shutdown_state.begun and asyncio.get_running_loop().time() >= self._reject_at:
            self.should_exit = True
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Wait for running responses, abort the rest after ``shutdown_s``, and close all connections."""
        self._shutdown_state.begin()
        self._tell_connections()
        if self._acceptor is not None:
            self._acceptor.close()
        abort = asyncio.get_running_loop().call_later(self._stages.shutdown_s, self._stages.abort)
        try:
            await super().shutdown(sockets)
            await self._stages.idle()  # aborted like all others when their time is up
        finally:
            abort.cancel()
            if self._internal is not None:
                self._internal.close()

    def _tell_connections(self) -> None:
        """Have responses that have not begun say that their connection ends; later ones do so by themselves."""
        _log.info(
            "shutting down: %d connections are open",
            len(self.server_state.connections),
            extra={"event": "shutting_down"},
        )
        for connection in self.server_state.connections:
            cycle: Any = getattr(connection, "cycle", None)
            if cycle is not None and not cycle.response_started:
                cycle.keep_alive = False
