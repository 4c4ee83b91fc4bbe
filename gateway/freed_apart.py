"""Long lists that are freed item by item, in a thread of its own.

CPython frees a list with all that hangs on it in one step, in which no other thread runs: 16,000 checked messages take
8 milliseconds. Where the last reference falls, in a frame of the event loop or with the traceback of an error, nobody
can tell beforehand; so the list itself sees to it.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Iterable
from queue import SimpleQueue
from typing import Any, TypeVar

Item = TypeVar("Item")

_AT_ONCE = 512  # items, which take half a millisecond or less
# Of two threads with much to do, which give way to each other, the event loop may have to wait for several turns.
_PAUSE_S = 0.001
_MANY_WAIT = 32  # lists, which memory is more urgent than
_left: SimpleQueue[list[Any]] = SimpleQueue()  # which may be put to anywhere, as finalizers are called anywhere


class FreedApart(list[Item]):
    """A list whose items are freed one by one once nobody has it any more; others run between two of them."""

    def __init__(self, items: Iterable[Item] = ()) -> None:
        """Take items; what they hang on besides keeps them as ever."""
        super().__init__(items)
        _begin()

    def __del__(self) -> None:
        """Live on until the items are freed: a copy would touch each of them here."""
        _left.put(self)


def like(source: object, items: list[Item]) -> list[Item]:
    """Items that were made of those of another list, to be freed as those are."""
    return FreedApart(items) if isinstance(source, FreedApart) else items


@functools.cache
def _begin() -> None:
    threading.Thread(target=_free, name="freeing", daemon=True).start()


def _free() -> None:
    while True:
        items = _left.get()
        while items:
            for _ in range(min(len(items), _AT_ONCE)):
                items.pop()
            if _left.qsize() < _MANY_WAIT:
                time.sleep(_PAUSE_S)
