"""One choice of a chat answer with calls or reasoning: makes messages and deltas from parser events."""

from __future__ import annotations

import secrets
import string
from dataclasses import dataclass, field
from typing import Any

from gateway.api.openai.custom_tools import InputReader
from gateway.generation import TokenLogprob
from gateway.serving.answer_reader import AnswerReader
from gateway.text.families import CallArguments, CallStart, Content, Event, Reasoning


@dataclass(slots=True)
class ChunkExtras:
    """The log-prob entries and token ids of a chunk.

    Attributes:
        logprobs: entries; empty when not asked for.
        ids: token ids; None when not asked for.
    """

    logprobs: list[TokenLogprob] = field(default_factory=list)
    ids: list[int] | None = None


_CONTENT = ("content",)
_ALPHABET = string.ascii_letters + string.digits


@dataclass(frozen=True, slots=True)
class AnswerStyle:
    """The format of calls and reasoning in an answer.

    Attributes:
        reasoning: names of the fields with the reasoning; none for models that do not reason.
        old: whether a call is a ``function_call``.
        named: whether a function was chosen by its name: OpenAI then ends with ``stop``.
        short_ids: whether ids of calls have nine letters and digits, which some templates insist on.
        custom: names of the custom tools.
    """

    reasoning: tuple[str, ...] = ()
    old: bool = False
    named: bool = False
    short_ids: bool = False
    custom: frozenset[str] = frozenset()

    def new_id(self) -> str:
        """Make an id for a call to which the model gave none."""
        if self.short_ids:
            return "".join(secrets.choice(_ALPHABET) for _ in range(9))
        return "call_" + "".join(secrets.choice(_ALPHABET) for _ in range(24))


@dataclass(slots=True)
class ParsedCall:
    """A call of the answer, complete or still being written.

    Attributes:
        id: the model's, or a new one where the model gave none.
        name: of the function.
        custom: reads the input of a custom tool; None for a function.
        arguments: the pieces of its arguments, which are JSON text.
        input: the pieces of a custom tool's input.
    """

    id: str
    name: str
    custom: InputReader | None = None
    arguments: list[str] = field(default_factory=list)
    input: list[str] = field(default_factory=list)

    @property
    def function(self) -> dict[str, str]:
        """Name and arguments so far."""
        return {"name": self.name, "arguments": "".join(self.arguments)}

    @property
    def written(self) -> dict[str, Any]:
        """The call in OpenAI's form."""
        if self.custom is None:
            return {"id": self.id, "type": "function", "function": self.function}
        return {"id": self.id, "type": "custom", "custom": {"name": self.name, "input": "".join(self.input)}}

    def push(self, arguments: str) -> str:
        """Add arguments; returns the new text of the arguments, or of a custom tool's input."""
        self.arguments.append(arguments)
        return arguments if self.custom is None else self._add_input(self.custom.push(arguments))

    def end(self) -> str:
        """End the arguments; returns the rest of a custom tool's input."""
        return "" if self.custom is None else self._add_input(self.custom.finish())

    def _add_input(self, text: str) -> str:
        self.input.append(text)
        return text


class ParsedChoice:
    """Collects the parser events of one choice.

    Attributes:
        reader: the reader of the choice's text.
        waiting: log-prob entries and ids that no chunk has had yet.
        made: the calls so far; a ``CallStart`` of index i is that of ``made[i]``.
    """

    def __init__(self, reader: AnswerReader, style: AnswerStyle, *, ids: bool) -> None:
        """Begin a choice.

        Args:
            reader: a fresh one, which is given to its generation too.
            style: of the answer.
            ids: whether token ids are wanted.
        """
        self.reader = reader
        self.waiting = ChunkExtras(ids=[] if ids else None)
        self._style = style
        self._ids = ids
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self.made: list[ParsedCall] = []

    def events(self, *, complete: bool = False) -> list[Event]:
        """Collect and return the reader's new events.

        For a custom tool, the input stands in place of the arguments.

        Args:
            complete: whether the text has ended.
        """
        events: list[Event] = []
        for event in self.reader.take():
            events += self._collect(event)
        return events + self._end_input() if complete else events

    def take(self, *, complete: bool = False) -> list[dict[str, Any]]:
        """Make the deltas of the reader's new events; ``complete`` as of ``events``."""
        return [self._delta(event) for event in self.events(complete=complete)]

    def fields(self, kind: type[Content | Reasoning]) -> tuple[str, ...]:
        """The fields of a delta that get the text of a kind."""
        return self._style.reasoning if kind is Reasoning else _CONTENT

    def texts(self, kind: type[Content | Reasoning]) -> list[str]:
        """The list of texts of a kind, to which the fast path adds texts that it does not parse."""
        return self._reasoning if kind is Reasoning else self._content

    def extras(self) -> ChunkExtras:
        """Return the waiting log-prob entries and ids, and empty them."""
        extras, self.waiting = self.waiting, ChunkExtras(ids=[] if self._ids else None)
        return extras

    @property
    def content(self) -> str | None:
        """The content so far; None when the choice has only calls."""
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
        """Reasoning tokens so far; None when an engine without token counts has returned reasoning."""
        counted = self.reader.reasoning_tokens
        return counted if counted is not None or self._reasoning else 0

    def finish_reason(self, reason: str) -> str:
        """The finish reason in OpenAI's words.

        Args:
            reason: why its generation ended.
        """
        if reason != "stop" or not self.made or self._style.named:
            return reason
        return "function_call" if self._style.old else "tool_calls"

    def message(self) -> dict[str, Any]:
        """Return the fields of the whole message except its content."""
        fields: dict[str, Any] = dict.fromkeys(self._style.reasoning, self.reasoning or None)
        if self.made and self._style.old:
            fields["function_call"] = self.made[0].function
        elif self.made:
            fields["tool_calls"] = [call.written for call in self.made]
        return fields

    def _collect(self, event: Event) -> list[Event]:
        """Collect an event and return the events to report."""
        if isinstance(event, CallArguments):
            text = self.made[event.index].push(event.text)
            return [CallArguments(event.index, text)] if text else []
        events = self._end_input()
        if isinstance(event, Content):
            self._content.append(event.text)
        elif isinstance(event, Reasoning):
            self._reasoning.append(event.text)
        else:
            custom = InputReader() if event.name in self._style.custom else None
            self.made.append(ParsedCall(event.id or self._style.new_id(), event.name, custom))
        return [*events, event]

    def _end_input(self) -> list[Event]:
        """The rest of a custom tool's input, whose call has ended."""
        text = self.made[-1].end() if self.made else ""
        return [CallArguments(len(self.made) - 1, text)] if text else []

    def _delta(self, event: Event) -> dict[str, Any]:
        if isinstance(event, Content):
            return {"content": event.text}
        if isinstance(event, Reasoning):
            return dict.fromkeys(self._style.reasoning, event.text)
        if isinstance(event, CallArguments):
            if self.made[event.index].custom is not None:
                return _tool_call(event.index, custom={"input": event.text})
            function = {"arguments": event.text}
            return {"function_call": function} if self._style.old else _tool_call(event.index, function=function)
        return self._start(event)

    def _start(self, event: CallStart) -> dict[str, Any]:
        function = {"name": event.name, "arguments": ""}
        if self._style.old:
            return {"function_call": function}
        call = self.made[event.index]
        if call.custom is not None:
            return _tool_call(event.index, id=call.id, type="custom", custom={"name": event.name, "input": ""})
        return _tool_call(event.index, id=call.id, type="function", function=function)


def _tool_call(index: int, **fields: Any) -> dict[str, Any]:
    return {"tool_calls": [{"index": index, **fields}]}
