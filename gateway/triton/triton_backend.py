"""The Triton of one served model: the connection, and a task that keeps the engine discovered and healthy."""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import TracebackType

import anyio
import grpc

from gateway.generation.engine import Engine, EngineError, EngineFeatures, ErrorKind
from gateway.generation.health import EngineCondition, EngineHealth, HealthNotes, HealthRules, HealthState
from gateway.generation.route import EndpointStatus, RoutingHints, SingleRoute
from gateway.settings import EnginePath
from gateway.telemetry.cooldown import Cooldown
from gateway.telemetry.supervision import end_tasks, keep_running
from gateway.triton.abilities import EngineOptions
from gateway.triton.access import PLAIN, TritonAccess
from gateway.triton.connection import BackgroundTasks, Connection
from gateway.triton.dialects.dialect import DiscoveryError
from gateway.triton.discovery import Discovery, discover
from gateway.triton.engine_watch import EngineWatch
from gateway.triton.grpcio import open_channel
from gateway.triton.missing_models import NotLoadedError
from gateway.triton.renewable_channel import RenewableChannel
from gateway.triton.renewal import follow_certificates
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
    """Requests cannot be served; the message is the reason in one sentence."""

    def __init__(self, reason: str, state: HealthState) -> None:
        super().__init__(reason)
        self.state = state


_MESSAGES = {
    ErrorKind.UNAVAILABLE: "The model is currently unavailable; try again later.",
    ErrorKind.UNSERVABLE: (
        "The model cannot be served because of its deployment, so trying again does not help; the gateway's log has "
        "the reason."
    ),
}


@dataclass(frozen=True, slots=True)
class TritonStatus:
    """Whether requests can be served now.

    Attributes:
        ready: whether they can.
        reason: one sentence: why this dialect when ready, else what is missing.
        features: features of the engine; None when not ready.
    """

    ready: bool
    reason: str
    features: EngineFeatures | None = None


@dataclass(frozen=True, slots=True)
class HealthChecks:
    """Timing and shared notes of a ready model's health checks.

    Attributes:
        poll_s: seconds between health checks.
        failures: failed checks in a row before requests are rejected; until then requests are tried.
        stall_s: shortest silence in seconds after which its engine gets a probe; 0 for never.
        probe_s: seconds without any token after which it gets a probe; 0 for never.
        turn: number of this process among those that watch it, from 0.
        notes: notes of all processes; None for one process.
    """

    poll_s: float = POLL_S
    failures: int = 3
    stall_s: float = 10.0
    probe_s: float = 30.0
    turn: int = 0
    notes: HealthNotes | None = None


_CHECKS = HealthChecks()


class TritonBackend:
    """Keeps one configured Triton model usable, also across restarts of Triton.

    The backend starts without Triton.

    Args:
        url: Triton's gRPC address, ``host:port``.
        model: the configured Triton model, usually the ensemble.
        path: how to reach its engine; ``auto`` decides by what is discovered.
        on_discovered: called in a thread with the features before each time the backend becomes ready; a ValueError
            that it raises keeps the backend from it, with the error's text as the reason.
        request_timeout: most seconds of a request, a backstop.
        options: the operator's settings of the engine.
        transport: transport of requests; health and configuration always travel by grpcio.
        health: how it is watched while it is ready.
        access: access to the Triton.

    Attributes:
        health: of the engine; all requests are reported to it. An engine that generates is alive, however slow its
            health checks are; an engine that has fallen silent may be dead, whatever its health checks say.
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
        health: HealthChecks = _CHECKS,
        access: TritonAccess = PLAIN,
    ) -> None:
        self.url = url
        self.model = model
        self.path = path
        self.on_discovered = on_discovered
        self._request_timeout = request_timeout
        self._options = options or EngineOptions()
        self._transport_name = transport
        self._checks = health
        self._access = access
        self.health = EngineHealth(
            HealthRules(health.stall_s, health.probe_s, health.failures, health.turn, health.notes)
        )
        self._transport: Transport | None = None
        self._background = BackgroundTasks()
        self._engine: Engine | None = None
        self._ready = asyncio.Event()
        self._check_now = asyncio.Event()
        self._forget(f"Triton at {url} has not been reached yet")
        self._connection_lost = False
        self._doubted = False
        self._asks = Cooldown(0.15)  # while Triton is disconnected and requests need it
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
        """Begin to look for Triton, without waiting."""
        if self._tasks:
            return
        self._channel = open_channel(self.url, self._access)
        transport = make_transport(self._transport_name, self.url, self._channel, self._access)
        self._transport = transport
        connection = Connection(transport, self._background, self._request_timeout, self._doubt)
        self._tasks = [
            self._keep("the health check of a Triton", self._supervise, TritonClient(self._channel), connection),
            self._keep("the watcher of a connection to Triton", self._watch_connection, self._channel),
        ]
        tls = self._access.tls
        if tls is not None and isinstance(self._channel, RenewableChannel):
            what = "the watcher of the certificates for a Triton"
            self._tasks.append(self._keep(what, follow_certificates, tls, self._channel, transport, self.url))

    def _keep(self, what: str, work: Callable[..., Awaitable[None]], *arguments: object) -> asyncio.Task[None]:
        return asyncio.create_task(keep_running(what, functools.partial(work, *arguments)))

    def check(self) -> None:
        """Check the readiness now, without waiting for the next health check."""
        self._check_now.set()

    async def close(self) -> None:
        """Stop supervising, finish what cancelled requests still need, close the connection."""
        tasks, self._tasks = self._tasks, []
        await end_tasks(*tasks)
        self._forget("the gateway is shutting down")
        if self._checks.notes is not None:
            self._checks.notes.close()
        await self._background.drain(_DRAIN_S)
        if self._transport is not None:
            await self._transport.close()
            self._transport = None
        if self._channel is not None:
            await self._channel.close()
            self._channel = None

    @property
    def engine(self) -> Engine:
        """The current engine.

        Read the property for each request: after an outage of Triton it is another engine.

        Raises:
            EngineError: while there is none: UNAVAILABLE where that passes, as where it has fallen silent, UNSERVABLE
                where something must change.
        """
        if self._engine is None or not self.health.ready:
            if self._engine is None and self._asks.due():
                self.check()
            raise self._failure()
        return self._engine

    def _failure(self) -> EngineError:
        condition = self.condition
        kind = ErrorKind.UNSERVABLE if condition.state == "mismatched" else ErrorKind.UNAVAILABLE
        return EngineError(kind, _MESSAGES[kind], condition.reason)

    @property
    def condition(self) -> EngineCondition:
        """The current health of the engine."""
        return self.health.condition

    @property
    def features(self) -> EngineFeatures:
        """The features of the last discovery; raises as ``engine`` does."""
        return self.engine.features

    @property
    def endpoints(self) -> tuple[EndpointStatus, ...]:
        """Empty, as there is one engine at a fixed address."""
        return ()

    def route(self, aim: RoutingHints) -> SingleRoute:
        """Make the route to the engine; raises as ``engine`` does."""
        engine = self._engine if aim.allow_unresponsive else None
        return SingleRoute(engine or self.engine, self.health)

    async def find(self, aim: RoutingHints) -> SingleRoute:
        """Make the route as ``route`` does."""
        return self.route(aim)

    def watch(self, watcher: Callable[[EngineHealth], None]) -> None:
        """Call ``watcher`` with the health of the engine."""
        watcher(self.health)

    @property
    def status(self) -> TritonStatus:
        """Whether requests can be served now, and why not, as ``engine`` raises it."""
        if self._engine is None or not self.health.ready:
            return TritonStatus(ready=False, reason=self.health.reason)
        features = self._engine.features
        return TritonStatus(ready=True, reason=features.reason, features=features)

    @property
    def ready(self) -> bool:
        """Whether requests can be served now; read several times for each request."""
        return self._engine is not None and self.health.ready

    async def wait_ready(self, seconds: float) -> None:
        """Wait until requests can be served.

        Raises:
            EngineError: as ``engine``, when that takes longer than ``seconds``.
        """
        try:
            with anyio.fail_after(seconds):
                await self._ready.wait()
        except TimeoutError:
            raise self._failure() from None

    async def _supervise(self, client: TritonClient, connection: Connection) -> None:
        delay = _FIRST_RETRY_S
        while True:
            self._check_now.clear()
            self._connection_lost = False
            try:
                discovered = await self._discover(client, connection)
            except _NotReadyError as error:
                self._lose(str(error), error.state)
                self.health.end_silent()
                await self._pause(delay)
                delay = min(2 * delay, _LAST_RETRY_S)
                continue
            except Exception:
                if self._engine is None:
                    self._lose("Triton's response could not be parsed; the gateway's log has the cause")
                raise
            delay = _FIRST_RETRY_S
            self._gain(discovered, connection.transport.name)
            async with EngineWatch(self.health, discovered.probe, discovered.completed, self._whose()):
                lost = await self._until_lost(client, connection, discovered.models)
            if lost is not None:
                self._lose(str(lost), lost.state)

    async def _discover(self, client: TritonClient, connection: Connection) -> Discovery:
        try:
            await connection.transport.prepare()
            discovered = await discover(client, connection, self.model, self.path, self._options)
        except DiscoveryError as error:
            raise _NotReadyError(str(error), "mismatched") from None
        except NotLoadedError as error:
            raise _NotReadyError(f"{error.message.rstrip('.')} ({self.url})", "loading") from None
        except EngineError as error:
            unavailable = error.kind is ErrorKind.UNAVAILABLE
            trouble = await tls_trouble(self.url, self._access) if unavailable else None
            raise _NotReadyError(trouble or f"{error.message.rstrip('.')} ({self.url})", "unreachable") from None
        if self.on_discovered is not None:
            try:
                # In a thread: it may load a tokenizer, and other models' tokens must not wait for that.
                await asyncio.to_thread(self.on_discovered, discovered.engine.features)
            except ValueError as error:
                raise _NotReadyError(str(error), "mismatched") from None
        return discovered

    async def _until_lost(
        self, client: TritonClient, connection: Connection, models: tuple[str, ...]
    ) -> _NotReadyError | None:
        """Watch until requests can no longer be served.

        The end of a connection alone says nothing: servers and proxies end connections now and then (``GOAWAY``), and
        the engine serves meanwhile. But the server may have ended, and another server may be there soon. A rejected
        connection and a model that is reported as gone are certain. A check that fails otherwise, late mostly, says
        little: a loaded server is slow. Only several such checks in a row count, and none while tokens come.

        Returns:
            The reason; None where only a new discovery can find the reason.
        """
        failures = 0
        while True:
            since = time.perf_counter()
            await self._pause(min(self._checks.poll_s, _DOUBT_S) if failures else self._checks.poll_s)
            if self._connection_lost:
                if self.health.belief == "well":
                    return None
                return _NotReadyError(f"the connection to Triton at {self.url} was lost", "unreachable")
            try:
                missing = await self._first_unready(client, models)
                if missing is None and self._doubted:  # Triton responds, but a request failed to reach it
                    self._doubted = False
                    await connection.transport.prepare()
            except EngineError as error:
                failures = 0 if self.health.latest() > since else failures + 1
                if error.kind is ErrorKind.UNAVAILABLE or failures >= self._checks.failures:
                    return _NotReadyError(f"{error.message.rstrip('.')} ({self.url})", "unreachable")
                if failures:
                    _LOG.warning(
                        "health check %d of %d failed",
                        failures,
                        self._checks.failures,
                        extra={"event": "health_check_failed", **self._whose()},
                    )
                continue
            failures = 0
            if missing is not None:
                return _NotReadyError(f"model {missing!r} is no longer ready in Triton at {self.url}", "loading")

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

    def _gain(self, discovered: Discovery, transport: str) -> None:
        self._engine = discovered.engine
        features = discovered.engine.features
        self.health.reset(one_piece=features.one_response(stream=True), doubtful=discovered.doubtful)
        self._ready.set()
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

    def _lose(self, reason: str, state: HealthState = "unreachable") -> None:
        if self._engine is not None or reason != self.health.reason:
            _LOG.warning(
                "engine not ready: %s", reason, extra={"event": "engine_not_ready", "state": state, **self._whose()}
            )
        self._forget(reason, state)

    def _forget(self, reason: str, state: HealthState = "unreachable") -> None:
        self._engine = None
        self.health.lost(EngineCondition(ready=False, state=state, reason=reason))
        self._ready.clear()
