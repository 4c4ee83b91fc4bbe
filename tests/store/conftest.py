"""Both stores, for tests that say the same of each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from gateway.serving.store import Store
from gateway.serving.store.interface import StoreBounds
from tests.store.places import Place, RedisPlace, SqlitePlace
from tests.store.redis_server import MISSING, RedisServer

MIB = 2**20


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A running Redis for all tests."""
    if MISSING:
        pytest.skip(MISSING)
    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def own_redis_server(tmp_path: Path) -> Iterator[RedisServer]:
    """A running Redis for one test, which may end it."""
    if MISSING:
        pytest.skip(MISSING)
    with RedisServer(tmp_path) as server:
        yield server


@pytest.fixture(params=["sqlite", "redis"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """An empty place for documents, of each kind in turn."""
    if request.param == "sqlite":
        yield SqlitePlace(tmp_path / "state" / "state.sqlite")
        return
    server: RedisServer = request.getfixturevalue("redis_server")
    with server.client() as client:
        client.flushall()
        yield RedisPlace(server.url, client)


@pytest.fixture
async def store(place: Place) -> AsyncIterator[Store]:
    """An empty store of each kind, which keeps 1 MiB for an hour."""
    store = place.open(StoreBounds(3600, MIB))
    yield store
    await store.close()
