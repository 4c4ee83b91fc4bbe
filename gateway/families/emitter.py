"""Events of a parser: collects them, decides about whitespace around calls, and holds a call until it is certain."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from gateway.families.events import CallArguments, CallStart, Content, Event, Reasoning
from gateway.families.family import Turn

_SPACE = " \t\r\n"


class Emitter:
    """Takes what a parser has read and says it as events.

    Whitespace between text and a call belongs to the format: it is shown only between two texts. Whitespace around
    reasoning is not shown at all. So whitespace at the end of what is there is held back until something follows.

    Attributes:
        content: takes text for the user.
        reasoning: takes text of the reasoning.
        calls: calls that were begun, which is the index of the next.
    """

    def __init__(self, turn: Turn, *, eager: bool) -> None:
        """Say an answer's events.

        Args:
            turn: names the tools that may be called.
            eager: whether calls are said while they form.
        """
        self._events: list[Event] = []
        self._names = frozenset(tool.name for tool in turn.tools) if turn.calls else frozenset()
        self._parallel = turn.parallel
        self.eager = eager
        self.calls = 0
        self._content = _Channel(lambda text: self._events.append(Content(text)), hold=turn.calls)
        self._reasoning = _Channel(lambda text: self._events.append(Reasoning(text)), hold=True, trim=True)
        self.content: Callable[[str], None] = self._content.text
        self.reasoning: Callable[[str], None] = self._reasoning.text

    def end_reasoning(self) -> None:
        """The answer proper begins: whitespace on both sides of the boundary is not shown."""
        self._reasoning.restart()
        self._content.restart()

    def begin_call(self) -> Call:
        """A call may begin here."""
        return Call(self)

    def take(self) -> list[Event]:
        """The events since the last time, those that merge merged."""
        events, self._events = self._events, []
        return list(merge(events))

    def finish(self) -> None:
        """The answer ended: what was held back is said."""
        self._content.finish()

    def knows(self, name: str) -> bool:
        """Whether a tool of this name may be called."""
        return name in self._names

    def start(self, name: str, call_id: str | None) -> int | None:
        """Say that a call begins; returns its index, or None when it is one more than the turn allows."""
        if self.calls and not self._parallel:
            return None
        index = self.calls
        self.calls += 1
        self._content.interrupt()
        self._events.append(CallStart(index, name, call_id))
        return index

    def more_arguments(self, index: int, text: str) -> None:
        """Say more of a call's arguments."""
        if text:
            self._events.append(CallArguments(index, text))


class Call:
    """A call that forms. Held until ``complete``, unless calls are eager: then said once its name is known.

    With ``parallel`` off only the first call of an answer is said, whatever the model writes.

    Attributes:
        started: whether it has been said, so that it can not be taken back.
    """

    __slots__ = ("_emitter", "_held", "_id", "_index", "_name", "started")

    def __init__(self, emitter: Emitter) -> None:
        self._emitter = emitter
        self._name: str | None = None
        self._id: str | None = None
        self._held: list[str] = []
        self._index: int | None = None
        self.started = False

    def named(self, name: str, call_id: str | None = None) -> bool:
        """The name is known; returns whether there is such a tool. If not, the call is broken."""
        if not self._emitter.knows(name):
            return False
        self._name, self._id = name, call_id
        if self._emitter.eager:
            self._start()
        return True

    def identified(self, call_id: str) -> None:
        """The model's own id is known; too late for a call that has been said."""
        self._id = call_id

    def arguments(self, text: str) -> None:
        """More of the JSON text of the arguments."""
        if not self.started:
            self._held.append(text)
        elif self._index is not None:
            self._emitter.more_arguments(self._index, text)

    def complete(self) -> bool:
        """The call is whole and valid; returns False, saying nothing, when it never got a name."""
        if self._name is None:
            return False
        if not self.started:
            self._start()
        return True

    def _start(self) -> None:
        self._index = self._emitter.start(self._name or "", self._id)
        self.started = True
        held, self._held = self._held, []
        for text in held:
            self.arguments(text)


class _Channel:
    """Text of one kind, with the rules for whitespace at its ends.

    ``trim``: whitespace at the beginning is not shown. ``hold``: whitespace at the end waits for what follows.
    """

    __slots__ = ("_emit", "_hold", "_interrupted", "_shown", "_space", "_trim")

    def __init__(self, emit: Callable[[str], None], *, hold: bool, trim: bool = False) -> None:
        self._emit = emit
        self._hold = hold
        self._trim = trim
        self._shown = False
        self._interrupted = False
        self._space: list[str] = []

    def text(self, text: str) -> None:
        if self._trim:
            text = text.lstrip(_SPACE)
            if not text:
                return
            self._trim = False
        body = text.rstrip(_SPACE) if self._hold else text
        if body:
            self._emit("".join([*self._space, body]))
            self._space = []
            self._shown, self._interrupted = True, False
        if len(body) < len(text):
            self._space.append(text[len(body) :])

    def interrupt(self) -> None:
        """A call comes here."""
        self._interrupted = True
        if not self._shown:
            self._space = []

    def restart(self) -> None:
        self._space = []
        self._trim = True

    def finish(self) -> None:
        if self._space and not self._interrupted:
            self._emit("".join(self._space))
        self._space = []


def merge(events: Iterable[Event]) -> list[Event]:
    """Join events of the same kind and index that follow each other."""
    groups: list[tuple[Event, list[str]]] = []
    for event in events:
        text = [] if isinstance(event, CallStart) else [event.text]
        if groups and text and _joins(groups[-1][0], event):
            groups[-1][1].extend(text)
        else:
            groups.append((event, text))
    return [_joined(event, texts) for event, texts in groups]


def _joins(one: Event, other: Event) -> bool:
    if isinstance(one, CallArguments) and isinstance(other, CallArguments):
        return one.index == other.index
    return type(one) is type(other)


def _joined(event: Event, texts: list[str]) -> Event:
    if isinstance(event, CallStart) or len(texts) == 1:
        return event
    text = "".join(texts)
    return CallArguments(event.index, text) if isinstance(event, CallArguments) else type(event)(text)


def without(text: str, markers: tuple[str, ...]) -> str:
    """The text without the markers in it."""
    return re.sub("|".join(map(re.escape, markers)), "", text) if markers else text
