"""Several endpoints as one backend: endpoints come and go, and each request gets one of them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass

from gateway.generation import EngineError, EngineFeatures, ErrorKind
from gateway.generation.health import READY, EngineCondition, EngineHealth
from gateway.generation.route import EndpointStatus, RoutingHints
from gateway.serving.backend import Backend
from gateway.serving.fleet.addresses import Addresses
from gateway.serving.fleet.breaker import Breaker, BreakerLimits
from gateway.serving.fleet.common_features import common, conflict
from gateway.serving.fleet.fleet_endpoint import FleetEndpoint
from gateway.serving.fleet.policies import Candidate, LeastInFlight, Policy, PowerOfTwo, PrefixAffinity
from gateway.serving.fleet.shared_counts import SharedCounts
from gateway.settings.model_settings import TritonSettings
from gateway.telemetry.cooldown import Cooldown
from gateway.telemetry.logs import cause
from gateway.telemetry.supervision import end_tasks, keep_running

_log = logging.getLogger(__name__)
_RETRIED = (ErrorKind.UNAVAILABLE, ErrorKind.INTERNAL, ErrorKind.QUEUE_FULL, ErrorKind.CANCELLED)
_GONE = (ErrorKind.UNAVAILABLE, ErrorKind.CANCELLED)  # of an endpoint that has ended, or is about to
_LOOK_S = 0.02  # while a request waits for an endpoint
_GONE_S = 10.0  # an endpoint that is unavailable for longer does not restrict the others
_FEWEST_RETRIES = 3  # retries in flight that are allowed however few requests run


def _policy(name: str, counts: SharedCounts) -> Policy:
    if name == "prefix":
        return PrefixAffinity(counts)
    return PowerOfTwo() if name == "power_of_two" else LeastInFlight()


@dataclass(frozen=True, slots=True)
class FleetStatus:
    """Whether any endpoint takes requests, and why.

    Attributes:
        ready: whether one takes requests.
        reason: how a ready endpoint is reached, or what is missing at each.
    """

    ready: bool
    reason: str


class Fleet:
    """The endpoints of one served model.

    Args:
        model: name of the model.
        settings: addresses of the endpoints, and the policy among them.
        make: makes the backend of the endpoint at an address.
        counts: shared counts of all worker processes.

    Attributes:
        on_discovered: see ``Backend``; called with the endpoints' common features.
        members: the current endpoints, by address.
        options: options of the fleet.
    """

    def __init__(
        self, model: str, settings: TritonSettings, make: Callable[[str], Backend], counts: SharedCounts
    ) -> None:
        self.on_discovered: Callable[[EngineFeatures], None] | None = None
        self.members: dict[str, FleetEndpoint] = {}
        self.options = settings.balance
        self._model = model
        self._make = make
        self._policy = _policy(self.options.policy, counts)
        self._limits = BreakerLimits(self.options.breaker_failures, self.options.breaker_open_s)
        self._counts = counts
        self._addresses = Addresses(settings.endpoints, self._take_addresses)
        self._retiring: set[FleetEndpoint] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._watchers: list[Callable[[EngineHealth], None]] = []
        self._features: EngineFeatures | None = None
        self._discovering = threading.Lock()
        self._retries = 0
        self._asks = Cooldown(0.15)  # to look at unavailable endpoints, while requests wait
        self._closed = False

    async def start(self) -> None:
        """Look up the endpoints, and begin to supervise them."""
        await self._addresses.look()
        if not self._addresses.fixed:
            self._run(keep_running("the lookup of endpoints", self._follow))

    def check(self) -> None:
        """Check immediately whether the endpoints are still ready."""
        for endpoint in self.members.values():
            endpoint.backend.check()

    async def close(self) -> None:
        """End the supervision of all endpoints."""
        endpoints = [*self.members.values(), *self._retiring]
        if not self._closed:
            self._closed = True
            for endpoint in endpoints:
                self._counts.leave(endpoint.key)
        tasks, self._tasks = self._tasks, set()
        await end_tasks(*tasks)
        await asyncio.gather(*(each.backend.close() for each in endpoints))

    def watch(self, watcher: Callable[[EngineHealth], None]) -> None:
        """Call ``watcher`` with the health of each endpoint, also of later ones."""
        self._watchers.append(watcher)
        for endpoint in self.members.values():
            endpoint.backend.watch(watcher)

    @property
    def features(self) -> EngineFeatures:
        """The common features of the endpoints.

        Raises:
            EngineError: of an endpoint, while none is ready and none was so a moment ago.
        """
        if self._features is None or not self._soon:
            raise self._failure()
        return self._features

    @property
    def status(self) -> FleetStatus:
        """Whether any endpoint takes requests."""
        endpoints = self.members.values()
        ready = [each for each in endpoints if each.ready]
        if ready and self._features is not None:
            unavailable = len(endpoints) - len(ready)
            out = f"; {unavailable} of {len(endpoints)} endpoints are unavailable" if unavailable else ""
            return FleetStatus(ready=True, reason=f"{self._features.reason}{out}")
        reasons = dict.fromkeys(each.conflict or each.reason for each in endpoints)
        return FleetStatus(ready=False, reason="; ".join(reasons) or "no endpoint address is known")

    @property
    def ready(self) -> bool:
        """See ``Backend``."""
        return self._features is not None and any(each.ready for each in self.members.values())

    @property
    def endpoints(self) -> list[EndpointStatus]:
        """The current state of each endpoint."""
        members = list(self.members.values())
        known = self._counts.counts_of([each.key for each in members])
        return [
            EndpointStatus(each.address, each.condition(known[each.key]), known[each.key].requests) for each in members
        ]

    @property
    def condition(self) -> EngineCondition:
        """The common health of the endpoints: that of the best one, with all reasons where none serves."""
        conditions = [each.backend.condition for each in self.members.values()]
        ready = [each for each in conditions if each.ready]
        if self.ready:
            return max(ready, key=lambda each: each.share, default=READY)
        state = conditions[0].state if conditions else "unreachable"
        return EngineCondition(ready=False, state=state, reason=self.status.reason)

    @property
    def _soon(self) -> bool:
        """Whether an endpoint is ready, or was so a moment ago: where one goes, another is about to come."""
        return self._await_any(())

    def _await_any(self, tried: Sequence[FleetEndpoint]) -> bool:
        """As ``_soon``, of those that a request was not tried on."""
        for each in self.members.values():  # once or more for each request: the first is ready, usually
            if each.was_ready_within(self.options.wait_s) and each not in tried and not each.conflict:
                return True
        return False

    async def find(self, hints: RoutingHints) -> FleetRoute:
        """Choose an endpoint for a request, and wait for one where it was ready a moment ago.

        Raises:
            EngineError: of an endpoint, while none is ready.
        """
        while True:
            try:
                return self.route(hints)
            except EngineError as error:
                if error.kind is not ErrorKind.UNAVAILABLE or not self._soon:
                    raise
            self._ask_again()
            await asyncio.sleep(_LOOK_S)

    def _ask_again(self) -> None:
        """Check whether an unavailable endpoint has come back, since a request waits."""
        if self._asks.due():
            for endpoint in self.members.values():
                if not endpoint.ready:
                    endpoint.backend.check()

    def route(self, hints: RoutingHints) -> FleetRoute:
        """Choose an endpoint for a request.

        Raises:
            EngineError: of an endpoint, while none is ready.
        """
        return FleetRoute(self, hints, self._choose(hints, ()))

    def _choose(self, hints: RoutingHints, tried: Sequence[FleetEndpoint]) -> FleetEndpoint:
        """Choose one that was not tried. Where all that are ready are out, one of them is better than none."""
        fit = [each for each in self.members.values() if not each.conflict and each not in tried]
        there = [each for each in fit if each.ready]
        ready = [each for each in there if not each.leaving] or there or [each for each in fit if each.there(hints)]
        if not ready:
            raise self._failure()
        known = self._counts.counts_of([each.key for each in ready])
        open_ = [each for each in ready if each.takes(known[each.key])] or ready
        slow = self.options.slow_start_s
        # Without a place in the shared memory an endpoint has its requests of this process at least.
        loads = [max(known[each.key].requests, each.requests) for each in open_]
        candidates = [Candidate(each.key, load, each.weight(slow)) for each, load in zip(open_, loads, strict=True)]
        chosen = candidates[0] if len(candidates) == 1 else self._policy.choose(candidates, hints.ids, hints.affinity)
        return next(each for each in open_ if each.key == chosen.key)

    def _failure(self) -> EngineError:
        """Return the failure of an unavailable endpoint, else of an unservable one."""
        failures = [failure for each in self.members.values() if (failure := each.failure()) is not None]
        passing = [failure for failure in failures if failure.kind is ErrorKind.UNAVAILABLE]
        none = EngineError(
            ErrorKind.UNAVAILABLE, "The model is currently unavailable; try again later.", self.status.reason
        )
        return (passing or failures or [none])[0]

    def _take_addresses(self, addresses: Sequence[str]) -> None:
        """Supervise the endpoints at these addresses, and no others."""
        for address in addresses:
            if address not in self.members:
                self.members[address] = endpoint = self._endpoint(address)
                _log.info("endpoint added", extra={"event": "endpoint_added", "triton": address, "model": self._model})
                self._run(endpoint.backend.start())
        for address, endpoint in self.members.items():
            endpoint.leaving = address not in addresses

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(self.options.lookup_s)
            await self._addresses.look()
            self._let_go()

    def _let_go(self) -> None:
        """Remove endpoints that have left the list, once another endpoint is ready."""
        if not any(each.ready and not each.leaving for each in self.members.values()):
            return
        for endpoint in [each for each in self.members.values() if each.leaving]:
            del self.members[endpoint.address]
            _log.info(
                "endpoint removed",
                extra={"event": "endpoint_removed", "triton": endpoint.address, "model": self._model},
            )
            self._retiring.add(endpoint)
            endpoint.retire(lambda left=endpoint: self._leave(left))  # type: ignore[misc]

    def _leave(self, endpoint: FleetEndpoint) -> None:
        if endpoint in self._retiring and not self._closed:  # `close` has already removed all endpoints
            self._retiring.remove(endpoint)
            self._counts.leave(endpoint.key)
            self._run(endpoint.backend.close())

    def _endpoint(self, address: str) -> FleetEndpoint:
        backend = self._make(address)
        endpoint = FleetEndpoint(self._model, address, backend, Breaker(self._limits), self._counts)
        backend.on_discovered = lambda features: self._discovered(endpoint, features)
        for watcher in self._watchers:
            backend.watch(watcher)
        return endpoint

    def _discovered(self, endpoint: FleetEndpoint, features: EngineFeatures) -> None:
        """Take an endpoint that is about to serve; called in its thread, and for one after the other.

        Raises:
            ValueError: when it cannot serve beside the others; they stay.
        """
        with self._discovering:
            others = {each: each.features for each in self.members.values() if each is not endpoint}
            known = {each: its for each, its in others.items() if its is not None}
            rivals = {each: problem for each, its in known.items() if (problem := conflict(its, features))}
            # An endpoint that was unavailable for a while will have changed too when it is back, or never comes back.
            there = [problem for each, problem in rivals.items() if each.was_ready_within(_GONE_S)]
            endpoint.conflict = there[0] if there else ""
            if endpoint.conflict:
                raise ValueError(f"{endpoint.conflict} ({endpoint.address})")
            shared = common([*(its for each, its in known.items() if each not in rivals), features])
            if self.on_discovered is not None:
                self.on_discovered(shared)
            endpoint.set_features(features)
            self._features = shared
            for rival in rivals:
                rival.features = None

    def _run(self, work: Coroutine[None, None, None]) -> None:
        if self._closed:
            work.close()
            return
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @property
    def _retry_room(self) -> bool:
        running = sum(each.requests for each in self.members.values())
        return self._retries < max(_FEWEST_RETRIES, self.options.retry_share * running)

    def takes_another(self, tried: Sequence[FleetEndpoint]) -> bool:
        """Tell whether a request that was tried on some endpoints may go to another one."""
        known = self._counts.counts_of([each.key for each in self.members.values()])
        return len(tried) <= self.options.retries and any(
            each not in tried and not each.conflict and each.condition(known[each.key]).ready
            for each in self.members.values()
        )

    async def retry(
        self, hints: RoutingHints, tried: Sequence[FleetEndpoint], failed: ErrorKind
    ) -> FleetEndpoint | None:
        """Choose another endpoint once fewer retries are under way; None without one.

        Where one endpoint has left and the others are unavailable, the others are checked immediately and waited for:
        in a rolling restart an endpoint may be back before this process has seen it.
        """
        until = -math.inf
        if failed in _GONE:
            until = time.monotonic() + self.options.wait_s
        while self._await_any(tried) or (time.monotonic() < until and self._left(tried)):
            if self._retry_room:
                with contextlib.suppress(EngineError):
                    chosen = self._choose(hints, tried)
                    self._retries += 1
                    return chosen
            self._ask_again()
            await asyncio.sleep(_LOOK_S)
        return None

    def _left(self, tried: Sequence[FleetEndpoint]) -> list[FleetEndpoint]:
        """The endpoints that a request was not tried on."""
        return [each for each in self.members.values() if each not in tried and not each.conflict]

    def retried(self) -> None:
        """Note that a retry had a response or has ended."""
        self._retries -= 1


class FleetRoute:
    """The route of one request to one endpoint of a fleet.

    Attributes:
        engine: engine of the endpoint.
        progress: watches the request.
        address: address of the endpoint.
        lose: see ``Route``.
    """

    def __init__(
        self, fleet: Fleet, hints: RoutingHints, endpoint: FleetEndpoint, tried: Sequence[FleetEndpoint] = ()
    ) -> None:
        only = endpoint.backend.route(hints.as_last_resort())
        self.engine, self.health = only.engine, only.health
        self.address = endpoint.address
        self.lose: Callable[[EngineError], None] | None = None
        self._fleet = fleet
        self._aim = hints
        self._endpoint = endpoint
        self._tried = (*tried, endpoint)
        self._responded = False
        self._retrying = bool(tried)

    @property
    def notes(self) -> FleetRoute:
        """The notes of the route; see ``Route``. A property, because an attribute would be a reference cycle."""
        return self

    def began(self) -> None:
        """Note that the request is sent; see ``RouteNotes``."""
        self._endpoint.sent(self)

    def responded(self) -> None:
        """Note the first response; see ``RouteNotes``."""
        self._responded = True
        self._endpoint.responded(self)
        self._settle()

    def ended(self, error: EngineError | None) -> None:
        """Note the end of the request; see ``RouteNotes``."""
        self._settle()
        self._endpoint.ended(self, error, responded=self._responded)

    def movable(self) -> bool:
        """Whether the request has no response yet and another endpoint takes it."""
        return not self._responded and self._fleet.takes_another(self._tried)

    async def elsewhere(self, error: EngineError) -> FleetRoute | None:
        """Find another endpoint; see ``Route``."""
        fleet = self._fleet
        if self._responded or error.kind not in _RETRIED or len(self._tried) > fleet.options.retries:
            return None
        endpoint = await fleet.retry(self._aim, self._tried, error.kind)
        if endpoint is None:
            return None
        _log.info(
            "request retried on another endpoint",
            extra={"event": "request_retried", **cause(), "triton": self.address, "elsewhere": endpoint.address},
        )
        return FleetRoute(fleet, self._aim, endpoint, self._tried)

    def _settle(self) -> None:
        if self._retrying:
            self._retrying = False
            self._fleet.retried()
