"""A conversation in an order that every template can show: results behind their calls, joined turns of one role."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

Place = TypeVar("Place")
Message = Mapping[str, Any]

PARAGRAPH = "\n\n"


class OpenCalls(Generic[Place]):
    """Calls without results yet, by id; several turns may use one id."""

    def __init__(self) -> None:
        self._open: dict[str, list[deque[Place]]] = {}

    def add(self, calls: Sequence[tuple[str, Place]]) -> None:
        """Add the calls of one turn, as ids and places."""
        turn: dict[str, deque[Place]] = {}
        for call_id, place in calls:
            turn.setdefault(call_id, deque()).append(place)
        for call_id, places in turn.items():
            self._open.setdefault(call_id, []).append(places)

    def bind(self, call_id: str) -> Place | None:
        """Bind a result to the nearest open call with its id; None without one.

        Of several calls in one turn it is the first.
        """
        turns = self._open.get(call_id)
        if not turns:
            return None
        place = turns[-1].popleft()
        if not turns[-1]:
            turns.pop()
        return place

    def __contains__(self, call_id: str) -> bool:
        """Whether a call has had this id, open or not."""
        return call_id in self._open


@dataclass(slots=True)
class Turn:
    """A message with the results of its calls.

    Attributes:
        place: place of the message in the request.
        message: see ``history``.
        results: one for each call that has one, in the order of the calls.
        function: the name of the called function, for a result.
    """

    place: int
    message: Message
    results: list[Turn] = field(default_factory=list)
    function: str = ""


def turns_of(messages: Sequence[Message]) -> list[Turn]:
    """Order a conversation into turns: each result moves behind its call, and messages between them follow."""
    turns: list[Turn] = []
    calls: OpenCalls[tuple[Turn, int, str]] = OpenCalls()
    results: dict[int, dict[int, Turn]] = {}
    for place, message in enumerate(messages):
        turn = Turn(place, message)
        found = calls.bind(message["tool_call_id"]) if message["role"] == "tool" else None
        if found is not None:
            of, index, turn.function = found
            results.setdefault(of.place, {})[index] = turn
            continue
        turns.append(turn)
        if called := message.get("tool_calls"):
            calls.add([(call["id"], (turn, index, call["function"]["name"])) for index, call in enumerate(called)])
    for turn in turns:
        if found_results := results.get(turn.place):
            turn.results = [found_results[index] for index in sorted(found_results)]
    return turns


def joined(turns: Sequence[Turn], joins: Collection[str], changed: list[str]) -> list[Turn]:
    """Join turns that a template rejects one behind the other.

    Args:
        turns: turns of a conversation.
        joins: as of ``TemplateAbilities``.
        changed: takes the paths of texts of the user that are shown in a result.
    """
    found: list[Turn] = []
    for turn in turns:
        last, role = found[-1] if found else None, turn.message["role"]
        if last is None or role not in {"user", "assistant"}:
            found.append(turn)
        elif role == "user" and last.results and "tool" in joins:
            result = last.results[-1]
            last.results[-1] = Turn(result.place, merged(result.message, turn.message), function=result.function)
            changed.append(f"messages[{turn.place}].content")
        elif role in joins and role == last.message["role"] and not last.message.get("tool_calls"):
            found[-1] = Turn(turn.place, merged(last.message, turn.message), turn.results)
        else:
            found.append(turn)
    return found


def merged(first: Message, second: Message) -> Message:
    """Merge two messages into one, with a paragraph each; the second may have calls."""
    texts = [text for text in second.get("parts") or [second["content"]] if text]
    if texts and (name := second.get("name")) and name != first.get("name"):
        texts[0] = f"{name}: {texts[0]}"
    message = {**first, "content": PARAGRAPH.join(filter(None, (first["content"], "\n".join(texts)))), "parts": None}
    if reasoning := PARAGRAPH.join(one["reasoning"] for one in (first, second) if one.get("reasoning")):
        message["reasoning"] = reasoning
    if second.get("tool_calls"):
        message["tool_calls"] = second["tool_calls"]
    return message
