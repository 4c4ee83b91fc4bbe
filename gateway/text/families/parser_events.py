"""Events of a family's parser in the order of the answer, and the emitter that makes them.

Consecutive events of the same kind (and index) merge: only their concatenation has a meaning, never where one ends and
the next begins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, NamedTuple

from gateway.text.families.family import CallArguments, CallStart, Content, Event, Reasoning, ToolPlan
from gateway.text.families.markers import Markers
from gateway.text.families.text_source import SPACE, need


class PassthroughState(NamedTuple):
    """A state of a parser in which each text becomes an event by itself, and changes nothing."""

    kind: type[Content | Reasoning]  # of the events
    more: Callable[[str], object | None]  # finds in a text what makes it more than that; None where there is nothing


def merge(events: Sequence[Event]) -> list[Event]:
    """Merge consecutive events of the same kind and index; starts of calls have different indices."""
    if len(events) < 2:
        return list(events)
    alike = groupby(events, key=lambda event: (type(event), getattr(event, "index", 0)))
    groups: list[list[Any]] = [list(group) for _, group in alike]
    return [
        group[0] if len(group) == 1 else replace(group[0], text="".join([each.text for each in group]))
        for group in groups
    ]


class Emitter:
    """Collects the read parts of an answer as events.

    Whitespace between text and a call belongs to the format: it is shown only between two texts. Whitespace around
    reasoning is not shown. So whitespace at the end is held back until something follows.
    """

    def __init__(self, plan: ToolPlan, *, eager: bool) -> None:
        """Say an answer's events; ``plan`` names the tools, ``eager``: whether calls are said while they form."""
        self._events = events = list[Event]()
        self.names = frozenset(tool.name for tool in plan.tools) if plan.calls else frozenset()
        self._parallel, self.eager = plan.parallel, eager
        self.calls = 0  # how many have been said, or left out as more than the plan allows
        self._content = _Channel(Content, events, hold=plan.calls)
        self._reasoning = _Channel(Reasoning, events, hold=True, trim=True)
        self.content, self.reasoning = self._content.text, self._reasoning.text

    def passing(self, taker: Callable[[str], None] | None, awaited: Markers) -> PassthroughState | None:
        """The state in which each text is an event by itself; None where ``taker`` does more with texts.

        ``awaited``: markers that end the state.
        """
        for channel in (self._content, self._reasoning):
            if taker == channel.text and channel.settled:
                return PassthroughState(
                    channel.kind, (awaited.first_or_space if channel.hold else awaited.first).search
                )
        return None

    def end_reasoning(self) -> None:
        """End the reasoning; whitespace on both sides of the boundary is not shown."""
        self._reasoning.restart()
        self._content.restart()

    def take(self) -> list[Event]:
        """Return the events since the last call, merged."""
        events = merge(self._events)
        self._events.clear()
        return events

    def finish(self) -> None:
        """End the answer: emit the held-back text."""
        self._content.finish()

    def start(self, name: str, call_id: str | None) -> Callable[[str], None]:
        """Emit the start of a call; returns a function for its arguments, which drops those of too many calls."""
        index = self.calls
        self.calls += 1
        if index and not self._parallel:
            return lambda _: None
        self._content.interrupt()
        self._events.append(CallStart(index, name, call_id))
        return lambda text: self._events.append(CallArguments(index, text)) if text else None


class FormingCall:
    """An incomplete call, held until ``complete``; an eager one is emitted once its name is known.

    Without ``parallel`` only the first call of an answer is emitted.
    """

    def __init__(self, emitter: Emitter) -> None:
        self._emitter = emitter
        self._name = ""
        self._held: list[str] = []
        self._take: Callable[[str], None] = self._held.append
        self.id: str | None = None  # the model's own, which comes too late for a call that has been said
        self.started = False  # whether it has been said, so that it cannot be taken back

    def named(self, name: str) -> None:
        """Set the name; without such a tool the call is broken."""
        need(name in self._emitter.names)
        self._name = name
        if self._emitter.eager:
            self.complete()

    def arguments(self, text: str) -> None:
        """Add JSON text of the arguments."""
        self._take(text)

    def complete(self) -> None:
        """Emit the complete and valid call."""
        if not self.started:
            self.started = True
            self._take = self._emitter.start(self._name, self.id)
            self._take("".join(self._held))


@dataclass(eq=False)
class _Channel:
    """Text of one kind, with the rules for whitespace at its ends."""

    kind: type[Content | Reasoning]
    events: list[Event]
    hold: bool  # whether whitespace at the end waits for what follows
    trim: bool = False  # whether whitespace at the beginning is not shown
    shown: bool = False
    interrupted: bool = False
    space: list[str] = field(default_factory=list)

    def text(self, text: str) -> None:
        if self.trim:
            text = text.lstrip(SPACE)
            self.trim = not text
        body = text.rstrip(SPACE) if self.hold else text
        if body:
            self.events.append(self.kind("".join([*self.space, body])))
            self.space = []
            self.shown, self.interrupted = True, False
        if len(body) < len(text):
            self.space.append(text[len(body) :])

    @property
    def settled(self) -> bool:
        """Whether ``text`` would show a text without whitespace at its end as it is, and change nothing."""
        return self.shown and not (self.trim or self.space or self.interrupted)

    def interrupt(self) -> None:
        """Note that a call comes here."""
        self.interrupted = True
        if not self.shown:
            self.space = []

    def restart(self) -> None:
        self.space = []
        self.trim = True

    def finish(self) -> None:
        if self.space and not self.interrupted:
            self.events.append(self.kind("".join(self.space)))
