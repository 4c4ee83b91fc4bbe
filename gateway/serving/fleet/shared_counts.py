"""Counts and health of endpoints in shared memory, which all worker processes read.

Requests in flight, until when an endpoint is out, when it was found well again, and who tries whether it is: a row for
each process, which it alone writes, by aligned 8-byte stores, so that readers need no lock: what they read is a request
in flight late at most. The supervisor clears the row of a worker that has died. Behind the rows a table of prefixes,
which all write: a cell that two of them overwrite names a wrong endpoint at worst, which costs a prefill.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

from gateway.generation.health import STATES, HealthNote
from gateway.serving.admission import shares
from gateway.serving.admission.shares import SharedLines
from gateway.text.shared_memory import SharedMemory

_PLACES: Final = 256  # endpoints of all models that a gateway counts at a time
_FIELDS: Final = 12
# Behind the key; times are milliseconds of the monotonic clock. The last seven are a ``HealthNote``.
_REQUESTS, _UNTIL, _WELL, _TRYING, _NOTE = range(1, 6)
SILENT_S: Final = 1e6
"""Seconds for which an endpoint is out that has fallen silent: until it is heard."""
_ROW: Final = _PLACES * _FIELDS
_LEFT: Final = -1  # the key of a place that an endpoint has left
_PREFIXES: Final = 1 << 16  # blocks of prompts that are known; a newer one takes the cell of an older one


@dataclass(slots=True)
class EndpointCounts:
    """The counts and the health of an endpoint by all processes.

    Attributes:
        requests: requests in flight.
        out: whether a process has found that it fails.
        silent: whether it is out because it has fallen silent, or gave no token.
        doubted: whether a process has found that it fails, and none has found it well since it was back.
        healed: whether a process has found that it fails, and one has found it well since.
        tried: whether a request is under way that tests the endpoint.
    """

    requests: int = 0
    out: bool = False
    silent: bool = False
    doubted: bool = False
    healed: bool = False
    tried: bool = False


class SharedCounts:
    """Rows of all processes, of which this process writes its own.

    Args:
        rows: number of processes.
        row: number of this process.
        descriptor: file of the shared memory, of ``size_of(rows)`` bytes; None for one process.
        wakers: an event descriptor for each process, by which others wake it.
        clock: in seconds, the same in all processes.

    Attributes:
        rows: number of processes.
        row: number of this process.
        shares: the shares of callers.
    """

    def __init__(
        self,
        rows: int = 1,
        row: int = 0,
        descriptor: int | None = None,
        wakers: Sequence[int] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.rows, self.row = rows, row
        self._start = row * _ROW
        self._cells = memoryview(SharedMemory(size_of(rows), descriptor).data).cast("q")
        self._prefixes = rows * _ROW
        self.shares = SharedLines(rows, row, self._cells[self._prefixes + 2 * _PREFIXES :], wakers, clock)
        self._places: dict[int, int] = {}
        self._joined: dict[int, int] = {}  # how often each has joined: an endpoint may come back while it still leaves
        self._clock = clock

    def clear(self, row: int) -> None:
        """Clear the row of a process that has died."""
        for index in range(row * _ROW, (row + 1) * _ROW):
            self._cells[index] = 0
        self.shares.clear(row)

    def join(self, key: int) -> None:
        """Begin to count an endpoint; without a free place it counts as one without requests.

        An endpoint that has joined already, as the same address of a reloaded model, has one place for both.
        """
        self._joined[key] = self._joined.get(key, 0) + 1
        if key in self._places:
            return
        for place in range(self._start, self._start + _ROW, _FIELDS):
            if self._cells[place] in {0, _LEFT}:
                for field in range(1, _FIELDS):
                    self._cells[place + field] = 0
                self._cells[place] = key
                self._places[key] = place
                return

    def leave(self, key: int) -> None:
        """Stop counting an endpoint, once it has left as often as it has joined."""
        self._joined[key] -= 1
        if self._joined[key]:
            return
        del self._joined[key]
        place = self._places.pop(key, None)
        if place is not None:
            self._cells[place] = _LEFT

    def add(self, key: int, requests: int) -> None:
        """Add requests in flight, or remove them, on a joined endpoint."""
        place = self._places.get(key)
        if place is not None:
            self._cells[place + _REQUESTS] += requests

    def out(self, key: int, seconds: float) -> None:
        """Note that an endpoint is out for some seconds; 0: it is well."""
        place = self._places.get(key)
        if place is None:
            return
        if seconds:
            self._cells[place + _UNTIL] = math.ceil((self._clock() + min(seconds, SILENT_S)) * 1000)
        elif self._cells[place + _UNTIL] or self._cells[place + _TRYING]:  # otherwise nothing changes
            self._cells[place + _UNTIL] = 0
            self._cells[place + _WELL] = math.ceil(self._clock() * 1000)

    def tries(self, key: int, *, trying: bool) -> None:
        """Note whether a request is under way that tests an endpoint."""
        place = self._places.get(key)
        if place is not None:
            self._cells[place + _TRYING] = int(trying)

    def counts_of(self, keys: Collection[int]) -> dict[int, EndpointCounts]:
        """Read the counts and the health of endpoints, by their keys."""
        found = {key: EndpointCounts() for key in keys}
        untils: dict[int, int] = {}
        wells: dict[int, int] = {}
        cells, now = self._cells, self._clock() * 1000
        for row in range(self.rows):
            for place in range(row * _ROW, (row + 1) * _ROW, _FIELDS):
                key = cells[place]
                if key == 0:
                    break
                known = found.get(key)
                if known is not None:
                    known.requests += cells[place + _REQUESTS]
                    if cells[place + _UNTIL]:
                        untils[key] = max(untils.get(key, 0), cells[place + _UNTIL])
                    if cells[place + _WELL]:
                        wells[key] = max(wells.get(key, 0), cells[place + _WELL])
                    known.tried = known.tried or cells[place + _TRYING] != 0
        for key, until in untils.items():
            known = found[key]
            known.out = until > now
            known.silent = until > now + SILENT_S * 500
            known.healed = not known.out and wells.get(key, 0) >= until
            known.doubted = not known.out and not known.healed
        return found

    def health(self, key: int) -> SharedHealth:
        """Join the shared health of an endpoint."""
        self.join(key)
        return SharedHealth(self, key)

    def note(self, key: int, note: HealthNote) -> None:
        """Write this process's note on the health of an endpoint."""
        place = self._places.get(key)
        if place is not None:
            *times, state, waiting, failed, served = note
            values = [int(each * 1000) for each in times]
            values += [STATES.index(state), waiting, int(failed * 1000), int(served * 1000)]
            for field, value in enumerate(values, _NOTE):
                self._cells[place + field] = value

    def notes(self, key: int) -> list[HealthNote]:
        """Read the other processes' notes on the health of an endpoint."""
        found = []
        for row in range(self.rows):
            for place in range(row * _ROW, (row + 1) * _ROW, _FIELDS):
                if row * _ROW == self._start or self._cells[place] == 0:
                    break
                if self._cells[place] == key:
                    *times, state, waiting, failed, served = self._cells[place + _NOTE : place + _FIELDS].tolist()
                    last, probed, judged = (each / 1000 for each in times)
                    found.append(HealthNote(last, probed, judged, STATES[state], waiting, failed / 1000, served / 1000))
        return found

    def endpoints_with_prefix(self, block: int) -> int:
        """Return the endpoints that know a block of a prompt, as bits of ``endpoint_bit``; 0 for none.

        Args:
            block: hash of the block, of 63 bits.
        """
        cell = self._prefixes + 2 * (block % _PREFIXES)
        return self._cells[cell + 1] if self._cells[cell] == block else 0

    def learn(self, block: int, bit: int) -> None:
        """Note that an endpoint knows a block."""
        cell = self._prefixes + 2 * (block % _PREFIXES)
        known = self._cells[cell + 1] if self._cells[cell] == block else 0
        self._cells[cell] = block
        self._cells[cell + 1] = known | bit


class SharedHealth:
    """The notes of all processes on the health of one endpoint; see ``HealthNotes``.

    Args:
        counts: the counts of all processes.
        key: key of the endpoint.
    """

    def __init__(self, counts: SharedCounts, key: int) -> None:
        self._counts, self._key = counts, key
        self._closed = False

    def close(self) -> None:
        """Remove the counts of this process."""
        if not self._closed:
            self._closed = True
            self._counts.leave(self._key)

    def write(self, note: HealthNote) -> None:
        """Write this process's note."""
        self._counts.note(self._key, note)

    def others(self) -> list[HealthNote]:
        """Read the notes of the other processes."""
        return self._counts.notes(self._key)


def endpoint_bit(key: int) -> int:
    """The bit of an endpoint in the table of known blocks; two endpoints may share one."""
    return 1 << key % 61


def size_of(rows: int) -> int:
    """The bytes of memory for a number of rows."""
    return (rows * _ROW + 2 * _PREFIXES + shares.size_of(rows)) * 8
