"""The answer to a Messages request: its content blocks, its message, and the events of its stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
from pydantic_core import from_json

from gateway.api.anthropic.errors import error_body
from gateway.api.anthropic.messages.signatures import signature_of
from gateway.api.anthropic.messages.tools import client_call_id
from gateway.api.anthropic.messages.translate import MessagesTurn
from gateway.api.openai.chat.answer import ChatAnswer, PreparedChat
from gateway.api.openai.errors import Names, OpenAIError
from gateway.api.usage import message_usage
from gateway.generation import Piece, Usage
from gateway.generation.ids import new_id
from gateway.generation.relay.interface import Forward, Write
from gateway.generation.relay.text_events import PassthroughTemplate, parsed_events, text_events
from gateway.serving.generation import Ready
from gateway.serving.generation_group import Generations
from gateway.text.families import CallArguments, Content, Reasoning
from gateway.text.families import Event as ParserEvent

Event = dict[str, Any]
_DELTAS = {"text": "text_delta", "thinking": "thinking_delta", "tool_use": "input_json_delta"}
_FIELDS = {"text": "text", "thinking": "thinking", "tool_use": "partial_json"}


class ContentBlocks:
    """Collects the content blocks of one answer.

    A family's parser ends a call before it begins the next one.

    Attributes:
        blocks: those so far; the last one may be open.
        texts: pieces of the open block's text, reasoning or arguments.
    """

    __slots__ = ("_kind", "_shows_thinking", "blocks", "texts")

    def __init__(self, *, shows_thinking: bool = True) -> None:
        """Begin without blocks.

        Args:
            shows_thinking: whether the client sees reasoning; else only its signature has it.
        """
        self.blocks: list[dict[str, Any]] = []
        self.texts: list[str] = []
        self._kind = ""  # of the open block; empty where none is open
        self._shows_thinking = shows_thinking

    def open_text(self) -> list[Event]:
        """Open a text block unless one is open; returns the events that end the block before and start this one."""
        return [] if self._kind == "text" else self._begin("text", {"type": "text", "text": ""})

    def text(self, text: str) -> list[Event]:
        """Add text."""
        return [*self.open_text(), self._delta(text)]

    def reasoning(self, text: str) -> list[Event]:
        """Add reasoning."""
        events: list[Event] = []
        if self._kind != "thinking":
            events = self._begin("thinking", {"type": "thinking", "thinking": "", "signature": ""})
        if self._shows_thinking:
            return [*events, self._delta(text)]
        self.texts.append(text)
        return events

    def call(self, call_id: str, name: str) -> list[Event]:
        """Begin a call.

        Args:
            call_id: in the client's form.
            name: of the tool.
        """
        return self._begin("tool_use", {"type": "tool_use", "id": call_id, "name": name, "input": {}})

    def arguments(self, text: str) -> list[Event]:
        """Add to the arguments of the call."""
        return [self._delta(text)]

    def close(self) -> list[Event]:
        """End the open block, if there is one."""
        kind, self._kind = self._kind, ""
        if not kind:
            return []
        text, block, events = "".join(self.texts), self.blocks[-1], []
        if kind == "thinking":
            block["signature"] = signature_of(text, has_text=self._shows_thinking)
            block["thinking"] = text if self._shows_thinking else ""
            events.append(self._event("delta", delta={"type": "signature_delta", "signature": block["signature"]}))
        elif kind == "tool_use":
            if not text.strip():  # clients read the input only from deltas
                events.append(self._event("delta", delta={"type": "input_json_delta", "partial_json": "{}"}))
            block["input"] = _input(text)
        else:
            block["text"] = text
        return [*events, self._event("stop")]

    def _begin(self, kind: str, block: dict[str, Any]) -> list[Event]:
        events = self.close()
        self.blocks.append(block)
        self._kind, self.texts = kind, []
        return [*events, self._event("start", content_block=dict(block))]

    def delta(self, kind: type[Content | Reasoning]) -> Event | None:
        """Make a delta event with an empty text; None where the open block takes no text of the kind, or hides it."""
        shown = self._kind == "thinking" and self._shows_thinking if kind is Reasoning else self._kind == "text"
        return self._text_delta("") if shown else None

    def _delta(self, text: str) -> Event:
        self.texts.append(text)
        return self._text_delta(text)

    def _text_delta(self, text: str) -> Event:
        return self._event("delta", delta={"type": _DELTAS[self._kind], _FIELDS[self._kind]: text})

    def _event(self, what: str, **fields: Any) -> Event:
        return {"type": f"content_block_{what}", "index": len(self.blocks) - 1, **fields}


def _input(arguments: str) -> dict[str, Any]:
    """The input of a tool: of arguments that were cut, as much as they have."""
    try:
        value = from_json(arguments, allow_partial="trailing-strings")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


class MessagesAnswer(ChatAnswer):
    """An answer to a Messages request.

    Attributes:
        content: its blocks.
    """

    __slots__ = ("_id", "_request_id", "_tools", "content")

    def __init__(self, turn: MessagesTurn, prepared: PreparedChat, names: Names, request_id: str) -> None:
        """Take a generation that has not begun.

        Args:
            turn: the request.
            prepared: for its chat request.
            names: tells the request's names of parameters that errors of the engine call otherwise.
            request_id: of the HTTP request.
        """
        super().__init__(turn.chat, prepared, names)
        thinking = turn.request.thinking
        self.content = ContentBlocks(shows_thinking=thinking is None or thinking.display != "omitted")
        self._id = f"msg_{new_id()}"
        self._request_id = request_id
        self._tools = turn.tools

    def feed(self, pieces: Sequence[Piece], *, complete: bool) -> list[Event]:
        """Add pieces to the content; returns the events of what was added."""
        events: list[Event] = []
        if self.parsed:
            if complete:
                self.close(0)
            for said in self.parsed[0].events():
                events += self._said(said)
        else:
            for piece in pieces:
                events += self.content.text(piece.text)
        if complete:
            if not self.content.blocks:  # clients expect a block
                events += self.content.open_text()
            events += self.content.close()
        return events

    def take(self, index: int, pieces: Sequence[Piece], *, complete: bool) -> None:
        """Add pieces to the only choice."""
        del index  # there is one choice
        self.feed(pieces, complete=complete)

    def unfit(self) -> OpenAIError | None:
        """The error of a finished answer that is not what the request requires; None without an error."""
        return self.failure(0, "".join(block["text"] for block in self.content.blocks if block["type"] == "text"))

    async def body(self, group: Generations) -> bytes:
        """Make the message as JSON.

        Raises:
            OpenAIError: the finished message is not what the request requires.
        """
        failure = self.unfit()
        if failure is not None:
            raise failure
        fields = {"content": self.content.blocks, **self.stop(), "usage": message_usage(self.usage(group))}
        return orjson.dumps(self.message() | fields)

    def message(self) -> dict[str, Any]:
        """Make the message of the first event: without content blocks and cached prompt tokens."""
        usage = self.generations[0].assembler.usage
        return {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": self.request.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": message_usage(usage.at_beginning()),
        }

    def stop(self) -> dict[str, Any]:
        """The stop reason and the stop sequence; valid at the end."""
        assembler = self.generations[0].assembler
        reason, sequence = "end_turn", None
        if assembler.finish_reason == "length":
            reason = "max_tokens"
        elif self.parsed and self.parsed[0].made:
            reason = "tool_use"
        elif isinstance(assembler.stop_reason, str):
            reason, sequence = "stop_sequence", assembler.stop_reason
        delta = {"stop_reason": reason, "stop_sequence": sequence}
        return delta | {"stop_reason_estimated": True} if assembler.finish_estimated else delta

    def failed(self, error: OpenAIError) -> bytes:
        """Make the data of an error event that ends the stream."""
        return error_body(error, self._request_id)

    def _said(self, said: ParserEvent) -> list[Event]:
        if isinstance(said, Content):
            return self.content.text(said.text)
        if isinstance(said, Reasoning):
            return self.content.reasoning(said.text)
        if isinstance(said, CallArguments):
            return self.content.arguments(said.text)
        call = self.parsed[0].made[said.index]
        return self.content.call(client_call_id(call.id), self._tools.own_name(call.name))


class MessagesEvents:
    """The events of one stream; see ``gateway.api.openai.endpoint.AnswerEvents``."""

    def __init__(self, answer: MessagesAnswer) -> None:
        """Begin before anything was generated."""
        self._answer = answer

    def opening(self) -> bytes:
        """Make the events that start the message, and its text block where the answer can only be text."""
        events: list[Event] = [{"type": "message_start", "message": self._answer.message()}, {"type": "ping"}]
        if not self._answer.parsed:
            events += self._answer.content.open_text()
        return _written(events)

    def take(self, ready: Ready, group: Generations) -> bytes:
        """Make the events of the output that became ready.

        Raises:
            OpenAIError: an answer that has ended is not what the request requires.
        """
        del group
        events: list[Event] = []
        for _, pieces, complete in ready:
            events += self._answer.feed(pieces, complete=complete)
            failure = self._answer.unfit() if complete else None
            if failure is not None:
                raise failure
        return _written(events)

    def forward(self, write: Write) -> Forward | None:
        """Write text pieces as ``content_block_delta`` events; None where the whole answer must be checked first."""
        if self._answer.parsed:  # its reader has taken the text
            return parsed_events(self._answer.parsed[0].reader, self._passed, self._parsed, write, joined=True)
        delta = self._answer.content.delta(Content)
        if self._answer.expectations or delta is None:
            return None
        before, after = _written([delta]).rsplit(b'""', 1)
        return text_events(before, after, write)

    def end(self, usage: Usage) -> bytes:
        """Make the events that end the stream."""
        last = {"type": "message_delta", "delta": self._answer.stop(), "usage": message_usage(usage)}
        return _written([last, {"type": "message_stop"}])

    def _passed(self) -> PassthroughTemplate | None:
        """Make the events around unparsed text; None before its content block is open, and where all text is parsed."""
        choice, content = self._answer.parsed[0], self._answer.content
        passing = choice.reader.passing
        delta = None if passing is None else content.delta(passing.kind)
        if passing is None or delta is None:
            return None
        return PassthroughTemplate(_written([delta]).rsplit(b'""', 1), (choice.texts(passing.kind), content.texts))

    def _parsed(self, _pieces: Sequence[Piece | str]) -> bytes:
        return _written(self._answer.feed((), complete=False))

    def error(self, error: OpenAIError) -> bytes:
        """Make the event of an error, in Anthropic's shape."""
        return b"event: error\ndata: " + self._answer.failed(error) + b"\n\n"


def _written(events: Sequence[dict[str, Any]]) -> bytes:
    return b"".join(
        b"event: " + event["type"].encode() + b"\ndata: " + orjson.dumps(event) + b"\n\n" for event in events
    )
