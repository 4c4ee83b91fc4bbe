"""The way of one request: the engine that it goes to, and the next one where that fails before it has responded."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, cast

from gateway.generation.engine import Engine, EngineError, TokenGenerator
from gateway.generation.health import EngineCondition, EngineHealth


@dataclass(frozen=True, slots=True)
class EndpointStatus:
    """One endpoint of a served model at one moment.

    Attributes:
        address: ``host:port``.
        condition: of its engine; ready where it takes requests.
        requests: in flight on it, of all worker processes.
    """

    address: str
    condition: EngineCondition
    requests: int


@dataclass(frozen=True, slots=True)
class RoutingHints:
    """What the endpoint of a request is chosen by, where there are several.

    Attributes:
        ids: of its prompt.
        affinity: names its conversation, if anything does.
        anyway: whether an engine that has fallen silent is taken as well: it is the last one.
    """

    ids: Sequence[int] = ()
    affinity: str | None = None
    anyway: bool = False

    def anyhow(self) -> RoutingHints:
        """The same, at an engine that has fallen silent too."""
        return RoutingHints(self.ids, self.affinity, anyway=True)


class RouteNotes(Protocol):
    """Takes note of a request on a route that is one of several."""

    def began(self) -> None:
        """The request is sent."""
        ...

    def responded(self) -> None:
        """The first response came."""
        ...

    def ended(self, error: EngineError | None) -> None:
        """The request has ended; ``error``: with which failure of the engine, None by itself or by a cancel."""
        ...


class Route(Protocol):
    """The way of one request to one engine.

    Attributes:
        engine: that it goes to.
        health: of that engine.
        address: of its endpoint, for the log.
        lose: called when its engine was found dead before any response; None: nothing is called.
    """

    engine: Engine
    health: EngineHealth
    address: str
    lose: Callable[[EngineError], None] | None

    @property
    def notes(self) -> RouteNotes | None:
        """Takes note of how the request goes; None: no notes are taken."""
        ...

    async def elsewhere(self, error: EngineError) -> Route | None:
        """Return the route to another endpoint for a request that failed before any response.

        Args:
            error: with which it failed; the way has ended with it.

        Returns:
            The way, perhaps after a wait; None where the failure is the response.
        """
        ...


def generator_of(route: Route) -> TokenGenerator:
    """The engine of a route to a model whose task is to generate."""
    return cast("TokenGenerator", route.engine)


class AdmittedGeneration(Protocol):
    """A generation whose turn has come.

    Attributes:
        waited_s: seconds that it waited for it.
    """

    @property
    def waited_s(self) -> float:
        """Seconds that it waited for its turn."""
        ...

    def leave(self, used: int) -> None:
        """Note its end, and the tokens of its prompt and its answer."""
        ...


class EngineLookup(NamedTuple):
    """How a generation finds its engine.

    Attributes:
        find: chooses its route, perhaps after a wait; may raise ``EngineError``.
        fit: makes of the route's engine the one that is asked, with what an answer adds to requests; None: nothing.
        enter: waits for its turn; may raise ``EngineError``. None where all may run.
    """

    find: Callable[[], Awaitable[Route]]
    fit: Callable[[Route], TokenGenerator] | None = None
    enter: Callable[[], Awaitable[AdmittedGeneration]] | None = None


class SingleRoute:
    """The way to the one engine that there is.

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
        """Return None, since no other engine exists."""
        return None
