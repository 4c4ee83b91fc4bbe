"""One choice of an answer that may hold calls or reasoning: a family's events as OpenAI's messages and deltas."""

from __future__ import annotations

import secrets
import string
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from gateway.families import CallArguments, CallStart, Content, Event, Reasoning
from gateway.openai.chat.chunks import Extras
from gateway.serving.answer_reader import AnswerReader

_ALPHABET = string.ascii_letters + string.digits


@dataclass(frozen=True, slots=True)
class Style:
    """How answers are written.

    Attributes:
        reasoning: the fields that have the reasoning; none for models that do not reason.
        old: whether a call is a ``function_call``.
        named: whether a function was chosen by its name: OpenAI then ends with ``stop``.
        short_ids: whether ids of calls have nine letters and digits, which some templates insist on.
    """

    reasoning: Sequence[str] = ()
    old: bool = False
    named: bool = False
    short_ids: bool = False

    def new_id(self) -> str:
        """An id for a call to which the model gave none."""
        if self.short_ids:
            return "".join(secrets.choice(_ALPHABET) for _ in range(9))
        return "call_" + "".join(secrets.choice(_ALPHABET) for _ in range(24))


@dataclass(slots=True)
class ParsedCall:
    """A call that the model has begun.

    Attributes:
        id: its own, or a new one where the model gave it none.
        name: of the function.
        arguments: the pieces of its arguments, which are JSON text.
    """

    id: str
    name: str
    arguments: list[str] = field(default_factory=list)

    @property
    def function(self) -> dict[str, str]:
        """Name and arguments so far."""
        return {"name": self.name, "arguments": "".join(self.arguments)}


class ParsedChoice:
    """Collects what a reader says of one choice.

    Attributes:
        reader: of the choice.
        waiting: log-prob entries and ids that no chunk had yet.
        made: the calls so far; a ``CallStart`` of index i is that of ``made[i]``.
    """

    def __init__(self, reader: AnswerReader, style: Style, *, ids: bool) -> None:
        """Begin a choice.

        Args:
            reader: a fresh one, which is given to its generation too.
            style: of the answer.
            ids: whether token ids are wanted.
        """
        self.reader = reader
        self.waiting = Extras(ids=[] if ids else None)
        self._style = style
        self._ids = ids
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self.made: list[ParsedCall] = []

    def events(self) -> list[Event]:
        """What the reader has said since the last time; it is collected here too."""
        events = self.reader.take()
        for event in events:
            self._collect(event)
        return events

    def take(self) -> list[dict[str, Any]]:
        """The deltas of what the reader has said since the last time."""
        return [self._delta(event) for event in self.events()]

    def extras(self) -> Extras:
        """What was waiting."""
        extras, self.waiting = self.waiting, Extras(ids=[] if self._ids else None)
        return extras

    @property
    def content(self) -> str | None:
        """The content so far; None when there are calls in its place."""
        return "".join(self._content) if self._content or not self.made else None

    @property
    def reasoning(self) -> str:
        """The reasoning so far."""
        return "".join(self._reasoning)

    @property
    def calls(self) -> list[tuple[str, str]]:
        """Name and arguments of each call so far."""
        return [(call.name, "".join(call.arguments)) for call in self.made]

    @property
    def reasoning_tokens(self) -> int | None:
        """Tokens of reasoning so far; None when there is reasoning of an engine that tells no tokens."""
        counted = self.reader.reasoning_tokens
        return counted if counted is not None or self._reasoning else 0

    def finish_reason(self, reason: str) -> str:
        """Why it ended, in OpenAI's words.

        Args:
            reason: why its generation ended.
        """
        if reason != "stop" or not self.made or self._style.named:
            return reason
        return "function_call" if self._style.old else "tool_calls"

    def message(self) -> dict[str, Any]:
        """The fields of the whole message besides its content."""
        fields: dict[str, Any] = dict.fromkeys(self._style.reasoning, self.reasoning or None)
        if self.made and self._style.old:
            fields["function_call"] = self.made[0].function
        elif self.made:
            fields["tool_calls"] = [
                {"id": call.id, "type": "function", "function": call.function} for call in self.made
            ]
        return fields

    def _collect(self, event: Event) -> None:
        if isinstance(event, Content):
            self._content.append(event.text)
        elif isinstance(event, Reasoning):
            self._reasoning.append(event.text)
        elif isinstance(event, CallArguments):
            self.made[event.index].arguments.append(event.text)
        else:
            self.made.append(ParsedCall(event.id or self._style.new_id(), event.name))

    def _delta(self, event: Event) -> dict[str, Any]:
        if isinstance(event, Content):
            return {"content": event.text}
        if isinstance(event, Reasoning):
            return dict.fromkeys(self._style.reasoning, event.text)
        if isinstance(event, CallArguments):
            function = {"arguments": event.text}
            return {"function_call": function} if self._style.old else _tool_call(event.index, function)
        return self._start(event)

    def _start(self, event: CallStart) -> dict[str, Any]:
        function = {"name": event.name, "arguments": ""}
        if self._style.old:
            return {"function_call": function}
        return _tool_call(event.index, function, id=self.made[event.index].id, type="function")


def _tool_call(index: int, function: dict[str, str], **fields: str) -> dict[str, Any]:
    return {"tool_calls": [{"index": index, **fields, "function": function}]}
