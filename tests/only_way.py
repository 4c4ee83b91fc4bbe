"""The way of a generation to one scripted engine."""

from __future__ import annotations

from gateway.generation import Engine
from gateway.generation.health import EngineHealth
from gateway.generation.route import OnlyRoute, Route, Way


def only_way(engine: Engine, progress: EngineHealth) -> Way:
    """Make the way to the one engine that there is, which is asked as it is."""

    async def find() -> Route:
        return OnlyRoute(engine, progress)

    return Way(find, lambda route: route.engine)
