"""The way of a generation to one scripted engine."""

from __future__ import annotations

from gateway.generation import TokenGenerator
from gateway.generation.health import EngineHealth
from gateway.generation.route import EngineLookup, Route, SingleRoute, generator_of


def only_way(engine: TokenGenerator, progress: EngineHealth) -> EngineLookup:
    """Make the way to the one engine that there is, which is asked as it is."""

    async def find() -> Route:
        return SingleRoute(engine, progress)

    return EngineLookup(find, generator_of)
