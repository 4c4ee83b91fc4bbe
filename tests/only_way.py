"""The way of a generation to one scripted engine."""

from __future__ import annotations

from gateway.generation import Engine
from gateway.generation.health import EngineHealth
from gateway.generation.route import EngineLookup, Route, SingleRoute


def only_way(engine: Engine, progress: EngineHealth) -> EngineLookup:
    """Make the way to the one engine that there is, which is asked as it is."""

    async def find() -> Route:
        return SingleRoute(engine, progress)

    return EngineLookup(find, lambda route: route.engine)
