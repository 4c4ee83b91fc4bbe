"""Lists of items as they are kept: JSON, a line for each, because most are passed on and few are looked at.

Each line is parsed and written on its own: to parse many megabytes in one go would hold up all streams, in whatever
thread.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gateway.openai.items.stored import as_stored
from gateway.openai.repeated import repeated


@dataclass(slots=True)
class ItemLines:
    """Items, the oldest first.

    Attributes:
        ids: of the items, all different.
        lines: the items as ``as_stored`` makes them, as JSON.
    """

    ids: list[str] = field(default_factory=list)
    lines: list[bytes] = field(default_factory=list)

    @staticmethod
    def of(items: Iterable[Mapping[str, Any]]) -> ItemLines:
        """Items of a request that was checked, or of a response."""
        made, taken = ItemLines(), set[str]()
        for item in items:
            made._append(as_stored(item, taken))
            taken.add(made.ids[-1])
        return made

    @property
    def size(self) -> int:
        """Bytes of the items."""
        return sum(map(len, self.lines))

    def items(self) -> list[dict[str, Any]]:
        """All items, with numbers as the client wrote them. It takes the longer the larger they are."""
        return [json.loads(line) for line in self.lines]

    def item(self, place: int) -> dict[str, Any]:
        """One item."""
        found: dict[str, Any] = json.loads(self.lines[place])
        return found

    def part(self, places: Sequence[int]) -> ItemLines:
        """Some of the items."""
        return ItemLines([self.ids[place] for place in places], [self.lines[place] for place in places])

    def add(self, others: ItemLines) -> ItemLines:
        """Put items behind those that are there; returns them as they are here: one whose id is taken gets another."""
        taken, added = set(self.ids), ItemLines()
        for place, name in enumerate(others.ids):
            if name in taken:
                added._append(as_stored(others.item(place), taken))
            else:
                added.ids.append(name)
                added.lines.append(others.lines[place])
            taken.add(added.ids[-1])
        self.ids += added.ids
        self.lines += added.lines
        return added

    def remove(self, place: int) -> None:
        """Take an item out."""
        del self.ids[place], self.lines[place]

    def _append(self, item: dict[str, Any]) -> None:
        self.ids.append(item["id"])
        self.lines.append(repeated(item))
