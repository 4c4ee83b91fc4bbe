"""One endpoint of a served model: its engine, its health, and its requests in flight."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from typing import Protocol

from gateway.generation import EngineError, EngineFeatures, ErrorKind
from gateway.generation.health import Belief, EngineCondition, EngineHealth
from gateway.generation.route import Route, RoutingHints
from gateway.serving.backend import Backend
from gateway.serving.fleet.breaker import Breaker
from gateway.serving.fleet.shared_counts import SILENT_S, EndpointCounts, SharedCounts
from gateway.text.shared_memory import key_of

_log = logging.getLogger(__name__)
_BLAMED = (ErrorKind.UNAVAILABLE, ErrorKind.INTERNAL, ErrorKind.TIMEOUT)


class EndpointRoute(Route, Protocol):
    """A request's route to one of several endpoints."""

    def movable(self) -> bool:
        """Whether another endpoint could serve the request now."""
        ...


class FleetEndpoint:
    """An endpoint of a fleet.

    Attributes:
        address: ``host:port``.
        key: identifies it in all processes.
        backend: its supervised engine.
        breaker: its circuit breaker.
        features: features of its engine at the last discovery; None before.
        leaving: whether it has left the list, and serves only until another endpoint is ready.
        conflict: why it cannot serve beside the others, in one sentence; empty when it can.
    """

    def __init__(self, model: str, address: str, backend: Backend, breaker: Breaker, counts: SharedCounts) -> None:
        self.address = address
        self._model = model
        self.key = key_of(model, address)
        self.backend = backend
        self.breaker = breaker
        self.features: EngineFeatures | None = None
        self.leaving = False
        self.conflict = ""
        self._counts = counts
        self._requests = 0
        self._waiting: set[EndpointRoute] = set()
        self._doubted = False  # when it was last looked at
        self._trial: EndpointRoute | None = None  # the request that finds out whether it is well again
        self._ready_since: float | None = None
        self._last_ready = -math.inf
        self._retired: Callable[[], None] | None = None
        counts.join(self.key)
        backend.watch(self._watch)

    @property
    def ready(self) -> bool:
        """Whether the engine is ready."""
        if not self.backend.ready:
            self._ready_since = None
            return False
        self._last_ready = time.monotonic()
        if self._ready_since is None:
            self._ready_since = self._last_ready
        return True

    def set_features(self, features: EngineFeatures) -> None:
        """Note the features of the engine, which is about to be ready."""
        self.features = features
        self._last_ready = time.monotonic()

    def was_ready_within(self, seconds: float) -> bool:
        """Tell whether the endpoint is ready, or was so within some seconds, as far as is known."""
        return self.ready or time.monotonic() - self._last_ready <= seconds

    @property
    def reason(self) -> str:
        """The fault of the endpoint or, without one, how it is reached, in one sentence."""
        if self.breaker.state != "closed":
            return f"its last requests failed ({self.address})"
        return self.backend.status.reason

    def condition(self, known: EndpointCounts) -> EngineCondition:
        """The health of the endpoint, by all processes."""
        condition = self.backend.condition
        if self.conflict:
            return EngineCondition(ready=False, state="mismatched", reason=self.conflict)
        if not self.ready or not (known.out or self.breaker.state == "open"):
            return condition
        if known.silent:
            return EngineCondition(ready=False, state="stalled", reason=condition.reason or "it has stopped responding")
        return EngineCondition(ready=False, state="failing", reason="its last requests failed", share=condition.share)

    def takes(self, known: EndpointCounts) -> bool:
        """Whether a request may be sent to the endpoint: after a failure one at a time until it is well."""
        self._doubted = known.doubted
        if known.out:
            return False
        if known.healed and self.breaker.state == "half_open":
            self.breaker.succeeded()
        return self.breaker.takes and not (known.doubted and known.tried)

    def failure(self) -> EngineError | None:
        """Return the error of an unavailable endpoint; None where it is available."""
        try:
            _ = self.backend.features
        except EngineError as error:
            return error
        return None

    @property
    def requests(self) -> int:
        """The requests of this process in flight on the endpoint."""
        return self._requests

    def weight(self, slow_start_s: float) -> float:
        """The weight of the endpoint: a tenth when it has just come, 1 after ``slow_start_s``."""
        if self._ready_since is None or not slow_start_s:
            return 1.0
        return min(1.0, max(0.1, (time.monotonic() - self._ready_since) / slow_start_s))

    def there(self, hints: RoutingHints) -> bool:
        """Whether a request can be sent to the endpoint, even if it has stopped responding."""
        try:
            self.backend.route(hints.as_last_resort())
        except EngineError:
            return False
        return True

    def sent(self, route: EndpointRoute) -> None:
        """Note that a request is sent."""
        self._requests += 1
        self._waiting.add(route)
        self._counts.add(self.key, 1)
        self.breaker.sent()
        if self._doubted and self._trial is None:
            self._trial = route
            self._counts.tries(self.key, trying=True)

    def responded(self, route: EndpointRoute) -> None:
        """Note the first response of a request."""
        self._waiting.discard(route)
        self.breaker.succeeded()
        self._counts.out(self.key, 0)
        self._tried(route)

    def ended(self, route: EndpointRoute, error: EngineError | None, *, responded: bool) -> None:
        """Note the end of a request, before or after its first response."""
        self._waiting.discard(route)
        self._requests -= 1
        self._counts.add(self.key, -1)
        self._tried(route)
        if error is not None and error.kind in _BLAMED:
            closed = self.breaker.state == "closed"
            self.breaker.failed()
            if self.breaker.state == "open":
                self._counts.out(self.key, self.breaker.open_for_s)
            if closed and self.breaker.state == "open":
                about = {"event": "endpoint_out", "triton": self.address, "model": self._model}
                _log.warning("endpoint gets no requests for a while: %s", error.detail or error.message, extra=about)
        elif not responded:
            self.breaker.unsaid()
        if self._retired is not None and not self._requests:
            self._retired()

    def _tried(self, route: EndpointRoute) -> None:
        if route is self._trial:
            self._trial = None
            self._counts.tries(self.key, trying=False)

    def retire(self, then: Callable[[], None]) -> None:
        """Call ``then`` once no request is in flight on the endpoint."""
        self._retired = then
        if not self._requests:
            then()

    def _watch(self, health: EngineHealth) -> None:
        health.awaits_first = True
        health.listen(self._believed)

    def _believed(self, belief: Belief) -> None:
        self._counts.out(self.key, 0 if belief == "well" else SILENT_S)
        if belief in ("stalled", "failing"):
            error = EngineError(ErrorKind.UNAVAILABLE, "The engine has stopped responding.", self.address)
            for route in list(self._waiting):
                if route.lose is not None and route.movable():
                    route.lose(error)
