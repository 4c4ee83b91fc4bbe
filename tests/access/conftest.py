from __future__ import annotations

from tests.app.conftest import folder
from tests.store.conftest import own_redis_server, redis_server

__all__ = ["folder", "own_redis_server", "redis_server"]
