"""Items as they are kept: each with an id and a status, its content as parts; and as a list of them shows them.

Lists of them are kept as JSON, a line for each, because most are passed on and few are looked at. Each line is parsed
and written on its own: to parse many megabytes in one go would hold up all streams, in whatever thread.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gateway.ids import new_id
from gateway.openai.repeated import repeated
from gateway.sealing import Seal

LOGPROBS = "message.output_text.logprobs"
"""The value of ``include`` that asks for log-probs."""

SEALED = "reasoning.encrypted_content"
"""The value of ``include`` that asks for sealed reasoning."""

_PREFIXES = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
    "compaction": "cmp",
}
_LONGEST_ID = 128
_WHOLE = frozenset({"message", "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output"})
"""Types of items that OpenAI lists with a status."""
_STATUSES = frozenset({"in_progress", "completed", "incomplete"})


def as_stored(item: Mapping[str, Any], taken: Collection[str] = ()) -> dict[str, Any]:
    """An item of a request that was checked, as it is kept.

    Args:
        item: as the client sent it.
        taken: ids of other items; one of them is not given again.
    """
    kind = "message" if item.get("type") is None else item["type"]  # the empty type is one that is not read
    given = item.get("id")
    own = isinstance(given, str) and 0 < len(given) <= _LONGEST_ID and given not in taken
    kept: dict[str, Any] = {"id": given if own else f"{_PREFIXES.get(kind, 'item')}_{new_id()}", "type": kind}
    if kind in _WHOLE:
        status = item.get("status")
        kept["status"] = status if isinstance(status, str) and status in _STATUSES else "completed"
    kept |= {key: value for key, value in item.items() if key not in {"id", "type", "status"}}
    if kind == "message":
        kept["content"] = _parts(item["role"], item.get("content"))
    elif kind == "reasoning":
        kept["summary"] = item.get("summary") or []
    elif kind.endswith("_call_output"):
        kept["output"] = item.get("output") or ""
    return kept


def shown(item: Mapping[str, Any], include: Collection[str], seal: Seal | None) -> dict[str, Any]:
    """A kept item as it is listed.

    Args:
        item: as it was kept.
        include: what else is asked for: log-probs and sealed reasoning are left out where they are not.
        seal: of the owner.
    """
    listed = dict(item)
    if item["type"] == "reasoning":
        sealed = listed.pop("encrypted_content", None)
        if SEALED in include and (sealed is not None or seal is not None):
            listed["encrypted_content"] = sealed or _sealed(item, seal)
    elif item["type"] == "message" and LOGPROBS not in include:
        listed["content"] = [{**part, "logprobs": []} if part.get("logprobs") else part for part in item["content"]]
    return listed


def shown_line(line: bytes, include: Collection[str], seal: Seal | None) -> bytes:
    """The same of an item as a line of JSON, which is parsed only where something may be left out or added."""
    if b'"type":"reasoning"' in line or line.count(b'"logprobs":') != line.count(b'"logprobs":[]'):
        return repeated(shown(json.loads(line), include, seal))
    return line


def text_of(parts: Any) -> str:
    """The texts of content parts as lines; empty where there are none that can be read."""
    texts = [part.get("text") for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
    return "\n".join(text for text in texts if isinstance(text, str) and text)


def _sealed(item: Mapping[str, Any], seal: Seal | None) -> str | None:
    text = text_of(item.get("content"))
    return seal.seal("reasoning", text) if seal is not None and text else None


def _parts(role: str, content: Any) -> list[dict[str, Any]]:
    said = role == "assistant"
    if isinstance(content, str):
        content = [{"type": "output_text" if said else "input_text", "text": content}]
    lists: dict[str, Any] = {"annotations": [], "logprobs": []}
    return [lists | part if part["type"] == "output_text" else dict(part) for part in content or ()]


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
