"""Both stores as the tests see them: where one is, and what lies there, read without the store's own code."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from pathlib import Path
from typing import Protocol

import redis

from gateway.serving.store import Store
from gateway.serving.store.interface import DOCUMENT_BYTES, ENTRY_BYTES, StoreBounds
from gateway.serving.store.redis_store import RedisStore
from gateway.serving.store.sqlite_store import SqliteStore

TAG = "{triton-openai-gateway}"


def store_at(address: str, bounds: StoreBounds) -> Store:
    """The store of a URL of Redis or of a path."""
    return RedisStore(address, bounds) if "://" in address else SqliteStore(Path(address), bounds)


class Place(Protocol):
    """Where the documents of a store lie."""

    address: str

    def open(self, bounds: StoreBounds) -> Store:
        """A store there; any number may be open."""
        ...

    def pass_time(self, seconds: float) -> None:
        """Let documents get older."""
        ...

    def kept(self) -> tuple[int, int]:
        """The bytes of all documents and logs as the store's count has them, and as they are counted one by one."""
        ...


class SqlitePlace:
    """A file, with a clock that a test moves."""

    def __init__(self, path: Path) -> None:
        self.address = str(path)
        self._path = path
        self._ahead = 0.0

    def open(self, bounds: StoreBounds) -> Store:
        return SqliteStore(self._path, bounds, lambda: time.time() + self._ahead)

    def pass_time(self, seconds: float) -> None:
        self._ahead += seconds

    def kept(self) -> tuple[int, int]:
        with contextlib.closing(sqlite3.connect(self._path, timeout=30)) as base:
            base.execute("BEGIN")  # one snapshot
            (total,) = base.execute("SELECT bytes FROM totals").fetchone()
            (documents,) = base.execute(
                "SELECT coalesce(sum(? + length(owner) + length(key) + length(data)), 0) FROM documents",
                (DOCUMENT_BYTES,),
            ).fetchone()
            (entries,) = base.execute(
                "SELECT coalesce(sum(? + length(data)), 0) FROM entries", (ENTRY_BYTES,)
            ).fetchone()
        return total, documents + entries


class RedisPlace:
    """A database of a server; time passes by what Redis still gives its keys."""

    def __init__(self, address: str, client: redis.Redis) -> None:
        self.address = address
        self._client = client

    def open(self, bounds: StoreBounds) -> Store:
        return RedisStore(self.address, bounds)

    def pass_time(self, seconds: float) -> None:
        for key in self._client.scan_iter(count=1000):
            left = int(str(self._client.pttl(key)))
            if left > 0:
                self._client.pexpire(key, max(0, left - int(seconds * 1000)))

    def kept(self) -> tuple[int, int]:
        counted = """
            local total, sum = tonumber(redis.call('HGET', KEYS[1] .. ':totals', 'bytes') or 0), 0
            for _, member in ipairs(redis.call('ZRANGE', KEYS[1] .. ':turns', 0, -1)) do
                local data = redis.call('HGET', KEYS[1] .. ':doc:' .. member, 'data')
                if data then
                    sum = sum + #data + #member - ARGV[3] - #string.match(member, '^%d+') + ARGV[1]
                end
                for _, entry in ipairs(redis.call('LRANGE', KEYS[1] .. ':log:' .. member, 0, -1)) do
                    sum = sum + #entry + ARGV[2]
                end
            end
            return {total, sum}
        """
        colons = 2
        total, summed = self._client.eval(counted, 1, TAG, DOCUMENT_BYTES, ENTRY_BYTES, colons)
        return int(total), int(summed)
