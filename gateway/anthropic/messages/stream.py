"""The events of a streamed message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from gateway.anthropic.messages.answer import MessagesAnswer, usage_of
from gateway.anthropic.messages.output import Event
from gateway.generation import Usage
from gateway.openai.errors import OpenAIError
from gateway.relay.interface import Forward, Write
from gateway.relay.text_events import made_events, text_events
from gateway.serving.generation_group import GenerationGroup, Ready


class MessagesEvents:
    """The events of one stream; see ``gateway.openai.endpoint.Events``."""

    def __init__(self, answer: MessagesAnswer) -> None:
        """Begin before anything was generated."""
        self._answer = answer

    def opening(self) -> bytes:
        """The beginning of the message, and of its text where it can have nothing else."""
        events: list[Event] = [{"type": "message_start", "message": self._answer.message()}, {"type": "ping"}]
        if not self._answer.parsed:
            events += self._answer.content.open_text()
        return _written(events)

    def take(self, ready: Ready, group: GenerationGroup) -> bytes:
        """The events of all that became ready.

        Raises:
            OpenAIError: when an answer that has ended is not what was asked for.
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
        """See the base. Nobody needs the text again, unless it is checked."""
        if self._answer.parsed:  # its reader has taken the text
            return made_events(lambda _: _written(self._answer.feed((), complete=False)), write)
        if self._answer.expectations:
            return None
        index = len(self._answer.content.blocks) - 1
        event = {"type": "content_block_delta", "index": index, "delta": {"type": "text_delta", "text": ""}}
        before, after = _written([event]).rsplit(b'""', 1)
        return text_events(before, after, write)

    def end(self, usage: Usage) -> bytes:
        """The events that end the stream."""
        last = {"type": "message_delta", "delta": self._answer.stop(), "usage": usage_of(usage)}
        return _written([last, {"type": "message_stop"}])

    def error(self, error: OpenAIError) -> bytes:
        """The event of an error, in Anthropic's shape."""
        return b"event: error\ndata: " + self._answer.failed(error) + b"\n\n"


def _written(events: Sequence[dict[str, Any]]) -> bytes:
    return b"".join(
        b"event: " + event["type"].encode() + b"\ndata: " + orjson.dumps(event) + b"\n\n" for event in events
    )
