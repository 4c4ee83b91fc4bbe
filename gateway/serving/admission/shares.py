"""The shares of callers in shared memory, which all worker processes read.

Each process has a row that no other process writes, by aligned 8-byte stores. Readers therefore need no lock; two
processes that act at the same moment let at most one request too many run. The supervisor clears the row of a dead
worker. A row has a line for each model and caller, and one for each model as a whole (caller 0):

- ``SERVED``: tokens served to the caller, divided by its weight; in a model's line its virtual time.
- ``WAITING``, ``TOKENS``: waiting requests, and their tokens.
- ``RANK``: rank of the first waiting request; smaller ranks go first. In a model's line: microseconds of the clock when
  a request was last admitted.
- ``RUNNING``, ``ENDED``: running requests, and ended ones.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from gateway.text.bounded_dict import BoundedDict

_MODEL, CALLER, SERVED, WAITING, TOKENS, RANK, RUNNING, ENDED = range(8)
_FIELDS: Final = 8
_LINES: Final = 512
_CALLER_LINES: Final = _LINES - 64  # the others are for models by themselves, and for callers who have no line
_USED, _LOOKED, _BEGUN = range(3)  # lines; milliseconds of the clock; how often a line was given to a caller
_HEAD: Final = 8  # so that a line is one of the processor's cache: processes take them from each other
_ROW: Final = _HEAD + _LINES * _FIELDS
_HUNG_S: Final = 1.0  # a process that has not looked for so long is passed over
_OTHERS: Final = 1  # the key of callers without a line of their own

Line = memoryview  # of ``_FIELDS`` integers


def size_of(rows: int) -> int:
    """The number of 8-byte integers for a number of rows."""
    return rows * _ROW


class SharedLine(NamedTuple):
    """A line of any process, as it was read.

    Attributes:
        row: row of the process.
        caller: key of the caller; 0 for the model as a whole.
        served: see the module.
        waiting: see the module.
        tokens: see the module.
        rank: see the module.
        running: see the module.
        ended: see the module.
    """

    row: int
    caller: int
    served: int
    waiting: int
    tokens: int
    rank: int
    running: int
    ended: int


class SharedLines:
    """The shared table of requests by model and caller; each process writes only its own row.

    Args:
        rows: number of processes.
        row: number of this process.
        cells: shared memory of ``size_of(rows)`` integers; None for one process.
        wakers: an event descriptor for each process, by which others wake it.
        clock: in seconds, the same in all processes.
    """

    def __init__(
        self,
        rows: int = 1,
        row: int = 0,
        cells: memoryview | None = None,
        wakers: Sequence[int] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.row = row
        self.clock = clock
        self._rows = rows
        self._cells = cells if cells is not None else memoryview(bytearray(size_of(rows) * 8)).cast("q")
        self._wakers = wakers
        self._listeners: list[Callable[[], None]] = []
        self._found = BoundedDict[tuple[int, int], Line](_LINES)  # a line may have become another's since
        self._begun: list[int] = []  # of all rows, when the lines below were found
        self._found_in_all = BoundedDict[tuple[int, int], tuple[int, ...]](_LINES)

    def clear(self, row: int) -> None:
        """Clear the requests of a process that has died."""
        start = row * _ROW
        begun = self._cells[start + _BEGUN]
        for index in range(start, start + _ROW):
            self._cells[index] = 0
        self._cells[start + _BEGUN] = begun + 1

    def line(self, model: int, caller: int = 0) -> Line:
        """Return this process's line for a model's caller; makes it if necessary.

        Without place for another line, callers share one, and are served as one caller.
        """
        found = self._found.get((model, caller))
        if found is None or found[_MODEL] != model or found[CALLER] != caller:
            found = self._found[model, caller] = self._look_for(model, caller)
        return found

    def _look_for(self, model: int, caller: int) -> Line:
        start = self.row * _ROW
        used = self._cells[start + _USED]
        for index in range(used):
            line = self._at(self.row, index)
            if line[_MODEL] == model and line[CALLER] == caller:
                return line
        if used >= _CALLER_LINES:
            reused = self._reused(model, caller)
            if reused is not None:
                return reused
            if caller not in {0, _OTHERS}:
                return self.line(model, _OTHERS)
        if used == _LINES:  # by many models with hundreds of callers each; another row is not to be written
            return memoryview(bytearray(_FIELDS * 8)).cast("q")
        line = self._at(self.row, used)
        self._begin(line, model, caller)
        self._cells[start + _USED] = used + 1
        self._cells[start + _BEGUN] += 1
        return line

    def _reused(self, model: int, caller: int) -> Line | None:
        """Reuse a line whose caller has no requests now."""
        for index in range(self._cells[self.row * _ROW + _USED]):
            line = self._at(self.row, index)
            if line[CALLER] not in {0, _OTHERS} and not line[WAITING] and not line[RUNNING]:
                self._begin(line, model, caller)
                self._cells[self.row * _ROW + _BEGUN] += 1
                return line
        return None

    @staticmethod
    def _begin(line: Line, model: int, caller: int) -> None:
        line[_MODEL] = 0  # readers skip the line until it is whole
        for field in range(CALLER, _FIELDS):
            line[field] = 0
        line[CALLER] = caller
        line[_MODEL] = model

    def _at(self, row: int, index: int) -> Line:
        start = row * _ROW + _HEAD + index * _FIELDS
        return self._cells[start : start + _FIELDS]

    def entries(self, model: int) -> Iterator[SharedLine]:
        """Read the lines of all processes for a model."""
        for row in range(self._rows):
            start = row * _ROW
            cells = self._cells[start + _HEAD : start + _HEAD + self._cells[start + _USED] * _FIELDS].tolist()
            for at in range(0, len(cells), _FIELDS):
                if cells[at] == model:
                    yield SharedLine(row, *cells[at + 1 : at + _FIELDS])

    def sums(self, model_line: Line, line: Line) -> tuple[int, int, int, int]:
        """Sum up the lines of all processes for the admission of a request.

        Args:
            model_line: this process's line for the model.
            line: this process's line for the model's caller; ``model_line`` for no caller.

        Returns:
            Running and waiting generations of the model, tokens served to the caller, and the model's greatest
            ``SERVED`` in any process.
        """
        model, caller = model_line[_MODEL], line[CALLER]
        if self._rows == 1:
            return model_line[RUNNING], model_line[WAITING], line[SERVED] if caller else 0, max(model_line[SERVED], 0)
        cells = self._cells
        running = waiting = virtual = 0
        for at in self._in_all(model, 0):
            running += cells[at + RUNNING]
            waiting += cells[at + WAITING]
            virtual = max(virtual, cells[at + SERVED])
        served = sum(cells[at + SERVED] for at in self._in_all(model, caller)) if caller else 0
        return running, waiting, served, virtual

    def waiting(self, model_line: Line) -> int:
        """Count the waiting requests of a model in all processes.

        Args:
            model_line: this process's line for the model.
        """
        if self._rows == 1:
            return model_line[WAITING]
        return sum(self._cells[at + WAITING] for at in self._in_all(model_line[_MODEL], 0))

    def _in_all(self, model: int, caller: int) -> tuple[int, ...]:
        """The offsets of all processes' lines for a model's caller; cached until a line is added or reused."""
        begun = self._cells[_BEGUN : self._rows * _ROW : _ROW].tolist()
        if begun != self._begun:
            self._found_in_all.clear()
            self._begun = begun
        found = self._found_in_all.get((model, caller))
        if found is None:
            found = self._found_in_all[model, caller] = tuple(self._places(model, caller))
        return found

    def _places(self, model: int, caller: int) -> Iterator[int]:
        for start in range(0, self._rows * _ROW, _ROW):
            first = start + _HEAD
            cells = self._cells[first : first + self._cells[start + _USED] * _FIELDS].tolist()
            for at in range(0, len(cells), _FIELDS):
                if cells[at] == model and cells[at + CALLER] == caller:
                    yield first + at

    def look(self) -> None:
        """Note that this process looks after waiting requests."""
        self._cells[self.row * _ROW + _LOOKED] = int(self.clock() * 1000)

    def hung(self, row: int) -> bool:
        """Tell whether another process has not looked for long."""
        return row != self.row and self.clock() - self._cells[row * _ROW + _LOOKED] / 1000 > _HUNG_S

    def wake(self, row: int) -> None:
        """Wake another process."""
        if row < len(self._wakers):
            os.eventfd_write(self._wakers[row], 1)

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call ``listener`` in the running event loop when another process wakes this one; returns what ends that."""
        if self.row < len(self._wakers) and not self._listeners:
            asyncio.get_running_loop().add_reader(self._wakers[self.row], self._woken)
        self._listeners.append(listener)

        def leave() -> None:
            self._listeners.remove(listener)
            if self.row < len(self._wakers) and not self._listeners:
                asyncio.get_running_loop().remove_reader(self._wakers[self.row])

        return leave

    def _woken(self) -> None:
        os.eventfd_read(self._wakers[self.row])
        for listener in tuple(self._listeners):
            listener()
