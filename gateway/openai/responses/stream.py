"""The events of a streamed response, numbered from 0 without gaps."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any

import orjson

from gateway.generation import Piece, Usage
from gateway.openai.errors import OpenAIError
from gateway.openai.responses.answer import ResponsesAnswer
from gateway.openai.responses.output import Event
from gateway.relay.interface import Forward, Write
from gateway.relay.text_events import made_events, numbered_text_events
from gateway.serving.generation_group import GenerationGroup, Ready


class ResponsesEvents:
    """The events of one stream; see ``gateway.openai.endpoint.Events``."""

    def __init__(self, answer: ResponsesAnswer) -> None:
        """Begin before anything was generated."""
        self._answer = answer
        self._numbers = itertools.count()
        self._unsent = b""  # what an error would overtake: the opening, and the end of an answer that does not fit
        self._opened = False

    def opening(self) -> bytes:
        """The beginning of the response, and of its message where it can have nothing else."""
        self._open()
        if not self._answer.parsed:
            self._unsent += self._written(self._answer.items.message())
        return self._unsent

    def take(self, ready: Ready, group: GenerationGroup) -> bytes:
        """The events of all that became ready.

        Raises:
            OpenAIError: when an answer that has ended is not what was asked for.
        """
        del group
        events: list[Event] = []
        failure: OpenAIError | None = None
        for _, pieces, complete in ready:
            events += self._answer.feed(pieces, complete=complete)
            failure = self._answer.unfit() if complete else None
        written = self._written(events)
        if failure is not None:
            self._unsent += written
            raise failure
        self._unsent = b""
        return written

    def forward(self, write: Write) -> Forward | None:
        """See the base."""
        answer = self._answer
        if answer.padded:
            return None
        if answer.parsed:  # its reader has taken the texts
            return made_events(self._parsed, write)
        delta = {"type": "response.output_text.delta", **answer.items.place, "content_index": 0}
        before = _head(delta["type"]) + orjson.dumps(delta)[:-1] + b',"delta":'
        texts = answer.items.texts.append
        return numbered_text_events(before, b',"logprobs":[]', self._numbers, write, texts, self._piece)

    def end(self, usage: Usage) -> bytes:
        """The event that ends the stream, with the whole response."""
        cut = self._answer.finish_reason(0) == "length"
        response = self._answer.ended(usage)
        return self._written([_whole("incomplete" if cut else "completed", response)])

    def error(self, error: OpenAIError) -> bytes:
        """The event of a response that has failed, behind all that was not sent before."""
        if not self._opened:  # the engine has not answered
            self._open()
        return self._unsent + self._written([_whole("failed", self._answer.failed(error))])

    def queued(self) -> bytes:
        """The events of a background response before the engine has answered; the opening goes on from there."""
        self._answer.told = True
        response = self._answer.response("queued")
        return self._written([_whole("created", response), _whole("queued", response)])

    def _open(self) -> None:
        self._opened = True
        begun = self._answer.response("in_progress")
        events = [
            _whole(name, begun) for name in (("in_progress",) if self._answer.told else ("created", "in_progress"))
        ]
        self._answer.told = True
        self._unsent = self._written(events)

    def _parsed(self, pieces: Sequence[Piece | str]) -> bytes:
        whole = [piece for piece in pieces if not isinstance(piece, str)]
        return self._written(self._answer.feed(whole, complete=False))

    def _piece(self, piece: Piece) -> bytes:
        return self._written(self._answer.items.content(piece.text, piece.logprobs))

    def _written(self, events: Sequence[dict[str, Any]]) -> bytes:
        written: list[bytes] = []
        for event in events:
            event["sequence_number"] = next(self._numbers)
            written += _head(event["type"]), orjson.dumps(event), b"\n\n"
        return b"".join(written)


def last_event(status: str, response: bytes, number: int) -> bytes:
    """The event that ends the stream of a stored response. OpenAI has none of a cancelled one: it is incomplete.

    Args:
        status: of the response.
        response: all of it.
        number: of the event.
    """
    event = _whole("incomplete" if status == "cancelled" else status, response)
    return _head(event["type"]) + orjson.dumps({**event, "sequence_number": number}) + b"\n\n"


def _whole(name: str, response: bytes) -> Event:
    return {"type": f"response.{name}", "response": orjson.Fragment(response)}


@functools.cache
def _head(kind: str) -> bytes:
    return b"event: " + kind.encode() + b"\ndata: "
