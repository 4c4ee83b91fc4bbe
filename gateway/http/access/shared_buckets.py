"""Limits in shared memory, which all processes of one gateway share.

Each caller has a slot: its buckets, and its requests in flight by process. Several processes write a bucket in turns,
by a lock on one byte of the memory's file, which the kernel takes from a process that dies. Where a stopped process
holds the lock, the others wait for a moment only; then they go on without it, and may count one request less.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Final

from gateway.http.access.buckets import Level, refilled
from gateway.http.access.caller import Caller
from gateway.http.access.limits import RemainingLimits, tokens_not_left, too_many_in_flight, too_many_requests
from gateway.settings import KeyLimits
from gateway.text.shared_memory import SharedMemory, key_of

_SLOTS: Final = 4096  # callers that are counted separately at a time
_PROBES: Final = 16
_HEAD: Final = 5  # key, then level and time of the last change of requests and of tokens
_REQUESTS: Final = 1
_TOKENS: Final = 3
_IDLE_S: Final = 60.0  # after which a bucket without debt is full, so that its slot may serve another caller
_PATIENCE_S: Final = 0.002


class SharedBuckets:
    """Buckets and requests in flight of callers.

    Args:
        rows: number of processes.
        row: number of this process.
        descriptor: file of the shared memory, of ``size_of(rows)`` bytes; None for one process.
        clock: in seconds, the same in all processes.
    """

    def __init__(
        self,
        rows: int = 1,
        row: int = 0,
        descriptor: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rows = rows
        self._row = row
        self._size = _HEAD + rows
        self._memory = SharedMemory(size_of(rows), descriptor)
        view = memoryview(self._memory.data)
        self._counts = view.cast("q")
        self._levels = view.cast("d")
        self._clock = clock

    def clear(self, row: int) -> None:
        """Clear the requests in flight of a process that has died."""
        for slot in range(_SLOTS):
            self._counts[slot * self._size + _HEAD + row] = 0

    def admit(self, caller: Caller, limits: KeyLimits) -> RemainingLimits:
        """Count a request as in flight.

        Args:
            caller: the caller.
            limits: the caller's limits.

        Raises:
            LimitedError: the request exceeds a limit; nothing is counted.
        """
        with self._slot(caller.id) as base:
            if limits.in_flight is not None and self._running(base) >= limits.in_flight:
                raise too_many_in_flight(caller, limits.in_flight)
            requests = self._level(base + _REQUESTS, limits.requests_per_minute)
            if requests is not None:
                if not requests.allows(1):
                    raise too_many_requests(caller, requests)
                requests = self._put(base + _REQUESTS, requests, requests.left - 1)
            self._counts[base + _HEAD + self._row] += 1
            return RemainingLimits(requests, self._level(base + _TOKENS, limits.tokens_per_minute))

    def reserve(self, caller: Caller, limits: KeyLimits, tokens: int) -> Level | None:
        """Reserve the tokens that a request may use; returns what is left, None without such a limit.

        Raises:
            LimitedError: the caller has too few tokens left; nothing is reserved.
        """
        with self._slot(caller.id) as base:
            level = self._level(base + _TOKENS, limits.tokens_per_minute)
            if level is None:
                return None
            # Of a part of the limit, in which it has no room, a request takes all: time pays the rest.
            whole = min(tokens, level.limit) if tokens <= (caller.limits.tokens_per_minute or 0) else tokens
            if not level.allows(whole):
                raise tokens_not_left(caller, level, tokens)
            return self._put(base + _TOKENS, level, level.left - tokens)

    def settle(self, caller: Caller, limits: KeyLimits, unused: int) -> None:
        """End a request, and return its unused tokens.

        Args:
            caller: the caller.
            limits: the limits of the request.
            unused: reserved tokens without the used ones, below 0 where it has used more.
        """
        with self._slot(caller.id) as base:
            place = base + _HEAD + self._row
            self._counts[place] = max(0, self._counts[place] - 1)
            level = self._level(base + _TOKENS, limits.tokens_per_minute) if unused else None
            if level is not None:
                self._put(base + _TOKENS, level, min(float(level.limit), level.left + unused))

    def count(self, caller: Caller, requests: int) -> None:
        """Change the count of requests in flight by requests that were admitted or ended elsewhere."""
        with self._slot(caller.id) as base:
            place = base + _HEAD + self._row
            self._counts[place] = max(0, self._counts[place] + requests)

    def _running(self, base: int) -> int:
        return sum(max(0, each) for each in self._counts[base + _HEAD : base + self._size])

    def _level(self, place: int, limit: int | None) -> Level | None:
        if limit is None:
            return None
        then = self._levels[place + 1]
        if not then:
            return Level(limit, float(limit))
        return Level(limit, refilled(self._levels[place], self._clock() - then, limit))

    def _put(self, place: int, level: Level, left: float) -> Level:
        self._levels[place] = left
        self._levels[place + 1] = self._clock()
        return Level(level.limit, left)

    @contextlib.contextmanager
    def _slot(self, identity: str) -> Iterator[int]:
        """The first cell of a caller's slot; meanwhile no other process changes those that begin where it does."""
        key = key_of(identity)
        first = key % _SLOTS
        with self._memory.locked(first, _PATIENCE_S):
            found = self._find(key, first)
            yield self._claim(key, first) if found is None else found

    def _claim(self, key: int, first: int) -> int:
        """Make a slot a key's own, one at a time: one slot is not to be taken by two."""
        with self._memory.locked(_SLOTS, _PATIENCE_S):
            found = self._find(key, first)
            return self._take(key, first) if found is None else found

    def _find(self, key: int, first: int) -> int | None:
        """The slot of a key among those that it may have; None where it has none."""
        for probe in range(_PROBES):
            base = (first + probe) % _SLOTS * self._size
            if self._counts[base] in {key, 0}:
                return base if self._counts[base] == key else None
        return None

    def _take(self, key: int, first: int) -> int:
        """Give a key a free slot, or one that is at rest; where there is none it shares one, and its limits."""
        places = [(first + probe) % _SLOTS * self._size for probe in range(_PROBES)]
        idle = next((base for base in places if not self._counts[base] or self._rests(base)), None)
        if idle is None:
            return places[0]
        for cell in range(idle, idle + self._size):
            self._counts[cell] = 0
        self._counts[idle] = key
        return idle

    def _rests(self, base: int) -> bool:
        """Whether a slot says no more than a fresh one."""
        levels, long_ago = self._levels, self._clock() - _IDLE_S
        return not any(self._counts[base + _HEAD : base + self._size]) and all(
            levels[base + place] >= 0 and levels[base + place + 1] < long_ago for place in (_REQUESTS, _TOKENS)
        )


def size_of(rows: int) -> int:
    """Compute the bytes of memory for a number of processes."""
    return _SLOTS * (_HEAD + rows) * 8
