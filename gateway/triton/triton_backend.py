"""One served model's Triton: the connection, and a task that keeps the engine discovered and healthy."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import TracebackType

import anyio
import grpc

from gateway.generation.engine import Engine, EngineError, EngineFeatures, ErrorKind
from gateway.generation.progress import ProgressWatch
from gateway.generation.route import Aim, EndpointStatus, OnlyRoute
from gateway.supervision import keep_running
from gateway.triton.abilities import EngineOptions
from gateway.triton.access import PLAIN, Access
from gateway.triton.connection import BackgroundTasks, Connection
from gateway.triton.discovery import Discovered, discover
from gateway.triton.grpcio import open_channel
from gateway.triton.renewable_channel import RenewableChannel
from gateway.triton.renewal import follow_certificates
from gateway.triton.servable import DiscoveryError, EnginePath
from gateway.triton.stall_guard import StallGuard
from gateway.triton.tls_trouble import tls_trouble
from gateway.triton.transport import Transport
from gateway.triton.transports import TransportName, make_transport
from gateway.triton.triton_client import TritonClient

_LOG = logging.getLogger(__name__)

POLL_S = 2.0
_FIRST_RETRY_S = 0.1
_LAST_RETRY_S = 2.0
_DRAIN_S = 5.0
_DOUBT_S = 0.5  # between checks while one has failed

Hook = Callable[[EngineFeatures], None]


class _NotReadyError(Exception):
    """Why requests cannot be served, in one sentence."""

    def __init__(self, reason: str, kind: ErrorKind = ErrorKind.UNAVAILABLE) -> None:
        super().__init__(reason)
        self.kind = kind


_TOLD = {
    ErrorKind.UNAVAILABLE: "The model is not available at the moment.",
    ErrorKind.UNSERVABLE: (
        "The model cannot be served as it is deployed, which trying again does not change; the gateway's log says why."
    ),
}


@dataclass(frozen=True, slots=True)
class BackendStatus:
    """Whether requests can be served now.

    Attributes:
        ready: they can.
        reason: one sentence: why this path when ready, else what is missing.
        features: what was discovered; None when not ready.
    """

    ready: bool
    reason: str
    features: EngineFeatures | None = None


@dataclass(frozen=True, slots=True)
class HealthChecks:
    """How a model that is ready is watched.

    Attributes:
        poll_s: seconds between health checks.
        failures: checks in a row that must fail before requests are refused; until then they are tried.
        stall_s: seconds of silence after which its engine is asked for a token at the earliest; 0: never.
    """

    poll_s: float = POLL_S
    failures: int = 3
    stall_s: float = 10.0


_HEALTH = HealthChecks()


class TritonBackend:
    """Keeps one configured Triton model usable: starts without Triton, survives its restarts.

    Args:
        url: Triton's gRPC address, ``host:port``.
        model: the configured Triton model, usually the ensemble.
        path: how to reach its engine; ``auto`` decides by what is discovered.
        on_discovered: called in a thread with the features before each time the backend becomes ready; a ValueError
            that it raises keeps the backend from it, with the error's text as the reason.
        request_timeout: seconds that a request may take in all; a backstop.
        options: what the operator says of the engine beyond its configuration in Triton.
        transport: what carries the requests; health and configuration always travel by grpcio.
        health: how it is watched while it is ready.
        access: on what terms Triton is reached.

    Attributes:
        progress: watches the engine, and is to be told of all requests. An engine that generates lives, however slow
            its health checks are; one that has fallen silent may be dead, whatever these say.
    """

    def __init__(  # noqa: PLR0913 - most are for what operators set
        self,
        url: str,
        model: str,
        path: EnginePath = "auto",
        *,
        on_discovered: Hook | None = None,
        request_timeout: float = 3600.0,
        options: EngineOptions | None = None,
        transport: TransportName = "auto",
        health: HealthChecks = _HEALTH,
        access: Access = PLAIN,
    ) -> None:
        self.url = url
        self.model = model
        self.path = path
        self.on_discovered = on_discovered
        self._request_timeout = request_timeout
        self._options = options or EngineOptions()
        self._transport_name = transport
        self._health = health
        self._access = access
        self.progress = ProgressWatch(health.stall_s, health.failures)
        self._transport: Transport | None = None
        self._background = BackgroundTasks()
        self._engine: Engine | None = None
        self._reason = f"Triton at {url} has not been reached yet"
        self._kind = ErrorKind.UNAVAILABLE
        self._connection_lost = False
        self._ready = asyncio.Event()
        self._check_now = asyncio.Event()
        self._doubted = False
        self._channel: grpc.aio.Channel | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> TritonBackend:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Begin to look for Triton; returns at once."""
        if self._tasks:
            return
        self._channel = open_channel(self.url, self._access)
        transport = make_transport(self._transport_name, self.url, self._channel, self._access)
        self._transport = transport
        connection = Connection(transport, self._background, self._request_timeout, self._doubt)
        self._tasks = [
            self._keep("the health check of a Triton", self._supervise, TritonClient(self._channel), connection),
            self._keep("the watch over a connection to Triton", self._watch_connection, self._channel),
        ]
        tls = self._access.tls
        if tls is not None and isinstance(self._channel, RenewableChannel):
            what = "the watch over the certificates for a Triton"
            self._tasks.append(self._keep(what, follow_certificates, tls, self._channel, transport, self.url))

    def _keep(self, what: str, work: Callable[..., Awaitable[None]], *arguments: object) -> asyncio.Task[None]:
        return asyncio.create_task(keep_running(what, functools.partial(work, *arguments)))

    def check(self) -> None:
        """Look at once whether requests can still be served, without waiting for the next health check."""
        self._check_now.set()

    async def close(self) -> None:
        """Stop supervising, finish what cancelled requests still need, close the connection."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        self._forget("the gateway is shutting down")
        await self._background.drain(_DRAIN_S)
        if self._transport is not None:
            await self._transport.close()
            self._transport = None
        if self._channel is not None:
            await self._channel.close()
            self._channel = None

    @property
    def engine(self) -> Engine:
        """The engine to generate with. Ask for it per request: it is another one after Triton was away.

        Raises:
            EngineError: while there is none: UNAVAILABLE where that passes, as where it has fallen silent, UNSERVABLE
                where something must change.
        """
        if self._engine is None:
            raise EngineError(self._kind, _TOLD[self._kind], self._reason)
        if self.progress.state != "well":
            raise EngineError(ErrorKind.UNAVAILABLE, _TOLD[ErrorKind.UNAVAILABLE], self.progress.reason)
        return self._engine

    @property
    def features(self) -> EngineFeatures:
        """What was last discovered; raises as ``engine``."""
        return self.engine.features

    @property
    def endpoints(self) -> tuple[EndpointStatus, ...]:
        """None: it stands for one endpoint by itself."""
        return ()

    def route(self, aim: Aim) -> OnlyRoute:
        """The way to the one engine; raises as ``engine``."""
        engine = self._engine if aim.anyway else None
        return OnlyRoute(engine or self.engine, self.progress)

    async def find(self, aim: Aim) -> OnlyRoute:
        """As ``route``."""
        return self.route(aim)

    def watch(self, watcher: Callable[[ProgressWatch], None]) -> None:
        """Call ``watcher`` with the watch of the engine."""
        watcher(self.progress)

    @property
    def status(self) -> BackendStatus:
        """Whether requests can be served now, and why not: as ``engine`` says it to a request."""
        if self._engine is None:
            return BackendStatus(ready=False, reason=self._reason)
        if self.progress.state != "well":
            return BackendStatus(ready=False, reason=self.progress.reason)
        features = self._engine.features
        return BackendStatus(ready=True, reason=features.reason, features=features)

    @property
    def ready(self) -> bool:
        """See ``Backend``; asked several times for each request."""
        return self._engine is not None and self.progress.state == "well"

    async def wait_ready(self, seconds: float) -> None:
        """Wait until requests can be served.

        Raises:
            EngineError: as ``engine``, when that takes longer than ``seconds``.
        """
        try:
            with anyio.fail_after(seconds):
                await self._ready.wait()
        except TimeoutError:
            raise EngineError(self._kind, _TOLD[self._kind], self._reason) from None

    async def _supervise(self, client: TritonClient, connection: Connection) -> None:
        delay = _FIRST_RETRY_S
        while True:
            self._check_now.clear()
            self._connection_lost = False
            try:
                discovered = await self._discover(client, connection)
            except _NotReadyError as error:
                self._lose(str(error), error.kind)
                await self._pause(delay)
                delay = min(2 * delay, _LAST_RETRY_S)
                continue
            except Exception:
                if self._engine is None:
                    self._lose("What Triton says could not be understood; the gateway's log has the cause")
                raise
            delay = _FIRST_RETRY_S
            self._gain(discovered.engine, connection.transport.name)
            async with StallGuard(self.progress, discovered.probe, self._whose()):
                lost = await self._until_lost(client, connection, discovered.models)
                if lost is not None:
                    # Within it: as the guard leaves, the watch begins anew, and would call a lost engine well.
                    self._lose(lost)

    async def _discover(self, client: TritonClient, connection: Connection) -> Discovered:
        try:
            await connection.transport.prepare()
            discovered = await discover(client, connection, self.model, self.path, self._options)
        except DiscoveryError as error:
            raise _NotReadyError(str(error), ErrorKind.UNSERVABLE) from None
        except EngineError as error:
            unavailable = error.kind is ErrorKind.UNAVAILABLE
            trouble = await tls_trouble(self.url, self._access) if unavailable else None
            raise _NotReadyError(trouble or f"{error.message.rstrip('.')} ({self.url})") from None
        if self.on_discovered is not None:
            try:
                # In a thread: it may load a tokenizer, and other models' tokens must not wait for that.
                await asyncio.to_thread(self.on_discovered, discovered.engine.features)
            except ValueError as error:
                raise _NotReadyError(str(error), ErrorKind.UNSERVABLE) from None
        return discovered

    async def _until_lost(self, client: TritonClient, connection: Connection, models: tuple[str, ...]) -> str | None:
        """Watch until requests can no longer be served; says why. None where it must be discovered anew to tell.

        The end of a connection alone says nothing: servers and proxies end them now and then (``GOAWAY``), and the
        engine serves meanwhile. But it may be the end of the server, and another one be there soon. A refused
        connection and a model that is said to be gone are certain. A check that fails otherwise, late mostly, says
        little: a loaded server is slow. Only several in a row count, and none while tokens come.
        """
        failures = 0
        while True:
            since = time.perf_counter()
            await self._pause(min(self._health.poll_s, _DOUBT_S) if failures else self._health.poll_s)
            if self._connection_lost:
                well = self.progress.state == "well"
                return None if well else f"the connection to Triton at {self.url} was lost"
            try:
                missing = await self._first_unready(client, models)
                if missing is None and self._doubted:  # a request found Triton gone that answers these checks
                    self._doubted = False
                    await connection.transport.prepare()
            except EngineError as error:
                failures = 0 if self.progress.latest() > since else failures + 1
                if error.kind is ErrorKind.UNAVAILABLE or failures >= self._health.failures:
                    return f"{error.message.rstrip('.')} ({self.url})"
                if failures:
                    _LOG.warning(
                        "health check %d of %d failed",
                        failures,
                        self._health.failures,
                        extra={"event": "health_check_failed", **self._whose()},
                    )
                continue
            failures = 0
            if missing is not None:
                return f"model {missing!r} is no longer ready in Triton at {self.url}"

    def _doubt(self) -> None:
        self._doubted = True
        self._check_now.set()

    def _whose(self) -> dict[str, str]:
        return {"triton": self.url, "model": self.model}

    async def _first_unready(self, client: TritonClient, models: tuple[str, ...]) -> str | None:
        # By name: another project's Triton may answer at the same address.
        for model in models:
            if not await client.model_ready(model):
                return model
        return None

    async def _watch_connection(self, channel: grpc.aio.Channel) -> None:
        """Notice a restart that is quicker than the health poll: the models may be others afterwards."""
        state = channel.get_state(try_to_connect=True)
        while True:
            await channel.wait_for_state_change(state)
            before, state = state, channel.get_state()
            if before is grpc.ChannelConnectivity.READY:
                self._connection_lost = True
                self._check_now.set()

    async def _pause(self, seconds: float) -> None:
        """Wait, but not longer than until something asks for a check."""
        # Not wait_for: before Python 3.12 it swallows a cancellation that comes together with the event.
        timer = asyncio.get_running_loop().call_later(seconds, self._check_now.set)
        try:
            await self._check_now.wait()
        finally:
            timer.cancel()
        self._check_now.clear()

    def _gain(self, engine: Engine, transport: str) -> None:
        self._engine = engine
        self._ready.set()
        features = engine.features
        _LOG.info(
            "engine ready",
            extra={
                "event": "engine_ready",
                "triton": self.url,
                "model": features.model,
                "path": features.path,
                "reason": features.reason,
                "transport": transport,
            },
        )
        for warning in features.warnings:
            _LOG.warning(
                "engine: %s", warning, extra={"event": "engine_warning", "triton": self.url, "model": features.model}
            )

    def _lose(self, reason: str, kind: ErrorKind = ErrorKind.UNAVAILABLE) -> None:
        if self._engine is not None or reason != self._reason:
            _LOG.warning("engine not ready: %s", reason, extra={"event": "engine_not_ready", **self._whose()})
        self._forget(reason, kind)

    def _forget(self, reason: str, kind: ErrorKind = ErrorKind.UNAVAILABLE) -> None:
        self._engine = None
        self._reason, self._kind = reason, kind
        self._ready.clear()
