from __future__ import annotations

from tests.store.conftest import own_redis_server, redis_server

__all__ = ["own_redis_server", "redis_server"]
