"""The route of a request: its engine, and the next one where that fails before a response."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, cast

from gateway.generation.engine import Engine, EngineError, TokenGenerator
from gateway.generation.health import EngineCondition, EngineHealth


@dataclass(frozen=True, slots=True)
class EndpointStatus:
    """The state of one endpoint of a served model at one moment.

    Attributes:
        address: ``host:port``.
        condition: condition of the engine; ready where it takes requests.
        requests: requests in flight, of all worker processes.
    """

    address: str
    condition: EngineCondition
    requests: int


@dataclass(frozen=True, slots=True)
class RoutingHints:
    """The facts of a request that decide which of several endpoints serves it.

    Attributes:
        ids: token ids of the prompt.
        affinity: id of the conversation, if known.
        allow_unresponsive: whether an engine that has stopped responding may be chosen, as the last resort.
    """

    ids: Sequence[int] = ()
    affinity: str | None = None
    allow_unresponsive: bool = False

    def as_last_resort(self) -> RoutingHints:
        """Copy the hints with ``allow_unresponsive``."""
        return RoutingHints(self.ids, self.affinity, allow_unresponsive=True)


class RouteNotes(Protocol):
    """Takes notes on a request whose route is one of several."""

    def began(self) -> None:
        """Note that the request is sent."""
        ...

    def responded(self) -> None:
        """Note the first response."""
        ...

    def ended(self, error: EngineError | None) -> None:
        """Note the end of the request; ``error``: the engine's failure, None without one."""
        ...


class Route(Protocol):
    """The route of one request to one engine.

    Attributes:
        engine: the engine.
        health: health of the engine.
        address: address of the endpoint, for the log.
        lose: called when the engine was found dead before any response; None where nothing is to be called.
    """

    engine: Engine
    health: EngineHealth
    address: str
    lose: Callable[[EngineError], None] | None

    @property
    def notes(self) -> RouteNotes | None:
        """Takes notes on the request; None without notes."""
        ...

    async def elsewhere(self, error: EngineError) -> Route | None:
        """Return the route to another endpoint for a request that failed before any response.

        Args:
            error: failure of the request, with which this route has ended.

        Returns:
            The route, perhaps after a wait; None where the failure is the response.
        """
        ...


def generator_of(route: Route) -> TokenGenerator:
    """The engine of a route, where the model's task is to generate."""
    return cast("TokenGenerator", route.engine)


class AdmittedGeneration(Protocol):
    """A generation whose turn has come.

    Attributes:
        waited_s: seconds that the generation waited for its turn.
    """

    @property
    def waited_s(self) -> float:
        """Seconds that the generation waited for its turn."""
        ...

    def leave(self, used: int) -> None:
        """Note the end of the generation, with the tokens of its prompt and its answer."""
        ...


class EngineLookup(NamedTuple):
    """Finds the engine of a generation.

    Attributes:
        find: chooses the route, perhaps after a wait; may raise ``EngineError``.
        fit: wraps the route's engine in one with additions of the answer; None without additions.
        enter: waits for the turn; may raise ``EngineError``. None where all may run.
    """

    find: Callable[[], Awaitable[Route]]
    fit: Callable[[Route], TokenGenerator] | None = None
    enter: Callable[[], Awaitable[AdmittedGeneration]] | None = None


class SingleRoute:
    """The route to a model's only engine.

    Args:
        engine: see ``Route``.
        health: see ``Route``.
    """

    address = ""
    notes = None

    def __init__(self, engine: Engine, health: EngineHealth) -> None:
        self.engine = engine
        self.health = health
        self.lose: Callable[[EngineError], None] | None = None

    async def elsewhere(self, error: EngineError) -> Route | None:  # noqa: ARG002 - of the protocol
        """Return None, as there is no other engine."""
        return None
