"""The answer to a Messages request over its running generation, and the message that it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from gateway.anthropic.errors import error_body
from gateway.anthropic.messages.call_ids import told
from gateway.anthropic.messages.output import ContentBlocks, Event
from gateway.anthropic.messages.translate import Turn
from gateway.families import CallArguments, Content, Reasoning
from gateway.families import Event as ParserEvent
from gateway.generation import Piece, Usage
from gateway.ids import new_id
from gateway.openai.chat.answer import ChatAnswer
from gateway.openai.chat.serving import Prepared
from gateway.openai.errors import OpenAIError
from gateway.openai.usage import ReasonedUsage
from gateway.serving.generation_group import GenerationGroup


class MessagesAnswer(ChatAnswer):
    """An answer to a Messages request.

    Attributes:
        content: its blocks.
    """

    __slots__ = ("_id", "_request_id", "_tools", "content")

    def __init__(self, turn: Turn, prepared: Prepared, names: Mapping[str, str], request_id: str) -> None:
        """Take a generation that has not begun.

        Args:
            turn: the request.
            prepared: for its chat request.
            names: the request's names of parameters that errors of the engine call otherwise.
            request_id: of the HTTP request.
        """
        super().__init__(
            turn.chat, prepared.generations, names, parsed=prepared.parsed, expectations=prepared.expectations
        )
        thinking = turn.request.thinking
        self.content = ContentBlocks(shows_thinking=thinking is None or thinking.display != "omitted")
        self._id = f"msg_{new_id()}"
        self._request_id = request_id
        self._tools = turn.tools

    def feed(self, pieces: Sequence[Piece], *, complete: bool) -> list[Event]:
        """Add pieces to the content; returns the events that tell of it."""
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
        """See the base."""
        del index  # there is one choice
        self.feed(pieces, complete=complete)

    def unfit(self) -> OpenAIError | None:
        """The reason why the whole answer is not what was asked for."""
        return self.failure(0, "".join(block["text"] for block in self.content.blocks if block["type"] == "text"))

    async def body(self, group: GenerationGroup) -> bytes:
        """The message."""
        failure = self.unfit()
        if failure is not None:
            raise failure
        fields = {"content": self.content.blocks, **self.stop(), "usage": usage_of(self.usage(group))}
        return orjson.dumps(self.message() | fields)

    def message(self) -> dict[str, Any]:
        """The message before its first block; the cached part of the prompt is not known yet."""
        usage = self.generations[0].assembler.usage
        return {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": self.request.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage_of(Usage(usage.prompt_tokens, 0)),
        }

    def stop(self) -> dict[str, Any]:
        """Why the answer ended; valid at the end."""
        assembler = self.generations[0].assembler
        reason, sequence = "end_turn", None
        if assembler.finish_reason == "length":
            reason = "max_tokens"
        elif self.parsed and self.parsed[0].made:
            reason = "tool_use"
        elif isinstance(assembler.stop_reason, str):
            reason, sequence = "stop_sequence", assembler.stop_reason
        told = {"stop_reason": reason, "stop_sequence": sequence}
        return told | {"stop_reason_estimated": True} if assembler.finish_estimated else told

    def failed(self, error: OpenAIError) -> bytes:
        """The data of the event of an error that has ended the answer."""
        return error_body(error, self._request_id)

    def _said(self, said: ParserEvent) -> list[Event]:
        if isinstance(said, Content):
            return self.content.text(said.text)
        if isinstance(said, Reasoning):
            return self.content.reasoning(said.text)
        if isinstance(said, CallArguments):
            return self.content.arguments(said.text)
        call = self.parsed[0].made[said.index]
        return self.content.call(told(call.id), self._tools.own_name(call.name))


def usage_of(usage: Usage) -> dict[str, Any]:
    """Write the ``usage`` of a message: tokens that were read from the cache are no input tokens.

    It has ``output_tokens_details`` where the answer may hold reasoning and its part is known, and ``estimated``, true,
    where the answer's tokens were counted by tokenizing its text again.
    """
    cached = usage.cached_tokens or 0
    counts: dict[str, Any] = {
        "input_tokens": usage.prompt_tokens - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": usage.completion_tokens,
    }
    if isinstance(usage, ReasonedUsage) and usage.reasoning_tokens is not None:
        counts["output_tokens_details"] = {"thinking_tokens": usage.reasoning_tokens}
    return counts | {"estimated": True} if usage.estimated else counts
