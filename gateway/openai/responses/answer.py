"""The answer to a Responses request over its running generation, and the response as it stands at any time."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from gateway.families import CallArguments, CallStart, Content, Reasoning
from gateway.families import Event as ParserEvent
from gateway.generation import Piece, TokenLogprob, Usage
from gateway.ids import new_id
from gateway.openai.chat.answer import ChatAnswer
from gateway.openai.chat.prepare import Prepared
from gateway.openai.errors import OpenAIError
from gateway.openai.responses.output import Event, OutputItems
from gateway.openai.responses.translate import Turn
from gateway.openai.usage import ReasonedUsage
from gateway.serving.generation_group import GenerationGroup


class ResponsesAnswer(ChatAnswer):
    """An answer to a Responses request.

    Attributes:
        items: its output.
    """

    __slots__ = ("_entries", "_id", "_repeated", "_tools", "items")

    def __init__(self, turn: Turn, prepared: Prepared, names: Mapping[str, str], repeated: Mapping[str, Any]) -> None:
        """Take a generation that has not begun.

        Args:
            turn: the request.
            prepared: for its chat request.
            names: the request's names of parameters that errors of the engine call otherwise.
            repeated: fields of the response that are known already.
        """
        super().__init__(
            turn.chat, prepared.generations, names, parsed=prepared.parsed, expectations=prepared.expectations
        )
        self.padded = turn.request.stream_options.include_obfuscation
        self.items = OutputItems()
        self._id = f"resp_{new_id()}"
        self._tools = turn.tools
        self._repeated = orjson.dumps(repeated)[1:]
        self._entries: list[TokenLogprob] = []  # of tokens whose text is not shown yet

    def feed(self, pieces: Sequence[Piece], *, complete: bool) -> list[Event]:
        """Add pieces to the output; returns the events that tell of it."""
        events: list[Event] = []
        if self.parsed:
            for piece in pieces:
                self._entries += piece.logprobs
            if complete:
                self.close(0)
            for said in self.parsed[0].events():
                events += self._said(said)
        else:
            for piece in pieces:
                events += self.items.content(piece.text, piece.logprobs)
        if complete:
            cut = self.generations[0].assembler.finish_reason == "length"
            if not self.items.items:
                events += self.items.message()
            events += self.items.close("incomplete" if cut else "completed")
        return events

    def take(self, index: int, pieces: Sequence[Piece], *, complete: bool) -> None:
        """See the base."""
        del index  # there is one choice
        self.feed(pieces, complete=complete)

    def unfit(self) -> OpenAIError | None:
        """The reason why the whole answer is not what was asked for."""
        return self.failure(0, self.items.text)

    async def body(self, group: GenerationGroup) -> bytes:
        """The ``response`` object."""
        failure = self.unfit()
        if failure is not None:
            raise failure
        return self.ended(self.usage(group))

    def ended(self, usage: Usage) -> bytes:
        """The whole response: completed, or incomplete where a limit has cut it.

        It has ``status_estimated``, true, where nothing tells for certain which of both it is.
        """
        cut = self.finish_reason(0) == "length"
        marks = {"status_estimated": True} if self.generations[0].assembler.finish_estimated else {}
        return self.response(
            "incomplete" if cut else "completed",
            **marks,
            completed_at=None if cut else int(time.time()),
            incomplete_details={"reason": "max_output_tokens"} if cut else None,
            output=self.items.items,
            usage=usage_of(usage),
        )

    def failed(self, error: OpenAIError) -> bytes:
        """The response that an error has ended, with what there is of its output."""
        self.items.close("incomplete")
        code = "rate_limit_exceeded" if error.status == 429 else "server_error"
        return self.response("failed", error={"code": code, "message": error.message}, output=self.items.items)

    def response(self, status: str, **fields: Any) -> bytes:
        """The response as JSON.

        Args:
            status: of it.
            fields: that differ from those of a response that has just begun.
        """
        own: dict[str, Any] = {
            "id": self._id,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "background": False,
            "completed_at": None,
            "error": None,
            "incomplete_details": None,
            "output": [],
            "usage": None,
        }
        return orjson.dumps(own | fields)[:-1] + b"," + self._repeated

    def _said(self, said: ParserEvent) -> list[Event]:
        items = self.items
        if isinstance(said, Content):
            return items.content(said.text, self._taken(said.text) if self._entries else ())
        if isinstance(said, Reasoning):
            if self._entries:
                self._taken(said.text)
            return items.reasoning(said.text)
        if isinstance(said, CallArguments):
            return items.arguments(said.text)
        return self._call(said)

    def _call(self, start: CallStart) -> list[Event]:
        call = self.parsed[0].made[start.index]
        return self.items.call(self._tools.origin_of(call.name), call.id)

    def _taken(self, text: str) -> list[TokenLogprob]:
        """The log-probs of the tokens of a text; markers before it have none that are shown.

        All that wait are taken where the text does not stand among them, because a token ends within it.
        """
        entries = self._entries
        start = b"".join(entry.bytes for entry in entries).find(text.encode())
        if start < 0:
            self._entries = []
            return entries
        position, first, last = 0, len(entries), len(entries)
        for place, entry in enumerate(entries):
            end = position + len(entry.bytes)
            if first == len(entries) and end > start:
                first = place
            position = end
            if end >= start + len(text.encode()):
                last = place + 1
                break
        self._entries = entries[last:]
        return entries[first:last]


def usage_of(usage: Usage) -> dict[str, Any]:
    """Write the ``usage`` of a response; OpenAI's type demands its details, so 0 stands where nobody knows them.

    ``output_tokens_details`` has ``estimated``, true, where ``output_tokens`` was counted by tokenizing the answer
    again.
    """
    reasoning = usage.reasoning_tokens if isinstance(usage, ReasonedUsage) else 0
    details: dict[str, Any] = {"reasoning_tokens": reasoning or 0}
    if usage.estimated:
        details["estimated"] = True
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens or 0, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": details,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }
