"""The answer to a Responses request: its output items, its response object, and the events of its stream."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import itertools
import time
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import orjson

from gateway.api.openai.chat.answer import ChatAnswer, PreparedChat
from gateway.api.openai.errors import NO_RETRY, Names, OpenAIError
from gateway.api.openai.responses.output import Event, OutputItems
from gateway.api.openai.responses.stored import (
    ResponseLostError,
    ResponseStore,
    StoredResponse,
    begun,
    merge_json_objects,
    new_response_id,
    store_errors_as_503,
)
from gateway.api.openai.responses.translate import ResponsesTurn
from gateway.api.openai.stored_items import append, stored_items
from gateway.api.usage import response_usage
from gateway.generation import Piece, TokenLogprob, Usage
from gateway.generation.relay.interface import Forward, Write
from gateway.generation.relay.text_events import PassthroughTemplate, numbered_text_events, parsed_events
from gateway.serving import store
from gateway.serving.generation import Ready
from gateway.serving.generation_group import Generations
from gateway.text.families import CallArguments, CallStart, Content, Reasoning
from gateway.text.families import Event as ParserEvent


class ResponsesAnswer(ChatAnswer):
    """An answer to a Responses request.

    Attributes:
        items: the output items.
        id: the response's id.
        announced: whether the response was announced to the client.
        end: status and own fields of the ended response; None before.
    """

    __slots__ = ("_entries", "_sent", "_turn", "_written", "announced", "end", "id", "items")

    def __init__(self, turn: ResponsesTurn, prepared: PreparedChat, names: Names, known: Mapping[str, Any]) -> None:
        """Take a generation that has not begun.

        Args:
            turn: the request.
            prepared: for its chat request.
            names: tells the request's names of parameters that errors of the engine call otherwise.
            known: fields of the response that are known already, of which some are the client's.
        """
        super().__init__(turn.chat, prepared, names)
        self.padded = turn.request.stream_options.include_obfuscation
        self.id = new_response_id()
        self.items = OutputItems(self.id, turn.cipher)
        self.kept = turn.response_store is not None and not turn.request.background
        self.announced = False
        self.end: tuple[str, bytes] | None = None
        self._written = False
        self._turn = turn
        self._sent = orjson.dumps(known)
        self._entries: list[TokenLogprob] = []  # of tokens whose text is not shown yet

    def feed(self, pieces: Sequence[Piece], *, complete: bool) -> list[Event]:
        """Add pieces to the output; returns the events of what was added."""
        if self.prewarms:
            return []
        events: list[Event] = []
        if self.parsed:
            for piece in pieces:
                self._entries += piece.logprobs
            if complete:
                self.close(0)
            for said in self.parsed[0].events(complete=complete):
                events += self._said(said)
        else:
            for piece in pieces:
                events += self.items.content(piece.text, piece.logprobs)
        if complete:
            cut = self.cut
            if not self.items.items:
                events += self.items.message()
            events += self.items.close("incomplete" if cut else "completed")
        return events

    def take(self, index: int, pieces: Sequence[Piece], *, complete: bool) -> None:
        """Add pieces to the only choice."""
        del index  # there is one choice
        self.feed(pieces, complete=complete)

    def unfit(self) -> OpenAIError | None:
        """The error of a finished answer that is not what the request requires; None without an error."""
        return None if self.prewarms else self.failure(0, self.items.text)

    def usage(self, group: Generations) -> Usage:
        """Count tokens so far, without the one token of a request that only prewarms the cache."""
        usage = super().usage(group)
        if not self.prewarms:
            return usage
        return dataclasses.replace(usage, completion_tokens=0, reasoning_tokens=0, estimated=False)

    @property
    def prewarms(self) -> bool:
        """Whether the request only prewarms the cache; its one generated token is not returned."""
        return self._turn.request.prewarms

    @property
    def cut(self) -> bool:
        """Whether the answer ended at its token limit; valid at the end."""
        return not self.prewarms and self.generations[0].assembler.finish_reason == "length"

    async def body(self, group: Generations) -> bytes:
        """Make the ``response`` object."""
        failure = self.unfit()
        if failure is not None:
            raise failure
        body = self.ended(self.usage(group))
        if self.kept:
            await self._keep()
        return body

    async def keep(self, usage: Usage | None) -> None:
        """Store the response, if it is ``kept``; after a reported error, a failure of the store is ignored."""
        if not self.kept:
            return
        if usage is not None:
            self.ended(usage)
            await self._keep()
        else:
            # The store has logged the failure, and the client gets an error anyway. A lost write may have succeeded.
            with contextlib.suppress(OpenAIError, ResponseLostError):
                await self._keep()

    def leave(self) -> None:
        """Store a response that is ``kept`` and has no stored end; one that has not ended is stored as cancelled."""
        response_store = self._turn.response_store
        if response_store is not None and self.kept and self.announced and not self._written:
            if self.end is None:
                self.cancelled()
            begun(self.write_end(response_store, 0))

    async def _keep(self) -> None:
        response_store = self._turn.response_store
        if response_store is not None:
            self._written = True
            try:
                await asyncio.shield(begun(self.write_end(response_store, 0)))
            except OpenAIError as error:
                if error.status == HTTPStatus.SERVICE_UNAVAILABLE:
                    error.message += " The response was generated and is not stored; 'store': false needs no store."
                    error.headers = NO_RETRY  # which would generate it again
                raise

    async def write_end(self, response_store: ResponseStore, expected: int) -> None:
        """Store the ended response, and append input and output to its conversation, both or neither.

        A failed or cancelled response is not a turn of the conversation.

        Args:
            response_store: where the response is stored.
            expected: the version of its document, 0 where the document is new.

        Raises:
            ResponseLostError: the document has another version: the response was ended or deleted elsewhere.
            OpenAIError: the store cannot be used; or the conversation is gone, or others keep changing it.
        """
        stored, conversation = self.stored_end(), self._turn.conversation
        if conversation is None or stored.status not in ("completed", "incomplete"):
            await response_store.put(self.id, stored, expected)
            return
        turn = dict(self._turn.items)
        append(turn, stored_items(self.items.items))
        await store_errors_as_503(conversation.append(turn, store.DocumentWrite(self.id, stored.encoded(), expected)))

    def stored(self, status: str, own: bytes) -> StoredResponse:
        """Make the response in stored form.

        Args:
            status: the response's status.
            own: fields of the response; see ``own``.
        """
        turn, request = self._turn, self._turn.request
        background = bool(request.background)
        return StoredResponse(
            status,
            background=background,
            streamed=background and request.stream,
            previous=request.previous_response_id,
            conversation=turn.conversation.id if turn.conversation else None,
            own=own,
            sent=self._sent,
            input=turn.items,
        )

    def stored_end(self) -> StoredResponse:
        """Make the ended response in stored form."""
        if self.end is None:
            raise ValueError("the response is not complete")
        return self.stored(*self.end)

    def ended(self, usage: Usage) -> bytes:
        """Make the ended response: completed, or incomplete where a limit has cut it.

        It has ``status_estimated``, true, where the engine does not tell which of both it is.
        """
        if self.end is not None:
            return merge_json_objects(self.end[1], self._sent)
        cut = self.cut
        estimated = self.generations[0].assembler.finish_estimated and not self.prewarms
        marks = {"status_estimated": True} if estimated else {}
        return self._ended(
            "incomplete" if cut else "completed",
            **marks,
            completed_at=None if cut else int(time.time()),
            incomplete_details={"reason": "max_output_tokens"} if cut else None,
            usage=response_usage(usage),
        )

    def failed(self, error: OpenAIError) -> bytes:
        """Make the response that an error has ended, with its output so far."""
        self.items.close("incomplete")
        code = "rate_limit_exceeded" if error.status == 429 else "server_error"
        return self._ended("failed", error={"code": code, "message": error.message})

    def cancelled(self) -> bytes:
        """Make the cancelled response, with its output so far."""
        self.items.close("incomplete")
        return self._ended("cancelled")

    def _ended(self, status: str, **fields: Any) -> bytes:
        self.end = status, self.own(status, output=self.items.items, **fields)
        return merge_json_objects(self.end[1], self._sent)

    def response(self, status: str) -> bytes:
        """Make the response before its end, as JSON.

        Args:
            status: of it.
        """
        return merge_json_objects(self.own(status), self._sent)

    def own(self, status: str, **fields: Any) -> bytes:
        """Make the fields of the response that do not repeat its request, as a JSON object.

        Args:
            status: of it.
            fields: fields that differ from those of a response at its start.
        """
        own: dict[str, Any] = {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "background": bool(self._turn.request.background),
            "completed_at": None,
            "error": None,
            "incomplete_details": None,
            "output": [],
            "usage": None,
        }
        return orjson.dumps(own | fields)

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
        return self.items.call(self._turn.tools.origin_of(call.name), call.id)

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


class ResponsesEvents:
    """Writes the events of one stream; see ``gateway.api.openai.endpoint.AnswerEvents``."""

    def __init__(self, answer: ResponsesAnswer) -> None:
        """Begin before anything was generated."""
        self._answer = answer
        self._numbers = itertools.count()
        self._unsent = b""  # what an error would overtake: the opening, and the end of an answer that does not fit
        self._opened = False

    def opening(self) -> bytes:
        """Make the events that start the response, and its message where the answer can only be text."""
        self._open()
        if not (self._answer.parsed or self._answer.prewarms):
            self._unsent += self._written(self._answer.items.message())
        return self._unsent

    def take(self, ready: Ready, group: Generations) -> bytes:
        """Make the events of the output that became ready.

        Raises:
            OpenAIError: an answer that has ended is not what the request requires.
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
        """Write pieces as delta events; None for padded streams and for requests that only prewarm the cache."""
        answer = self._answer
        if answer.padded or answer.prewarms:
            return None
        if answer.parsed:  # its reader has taken the texts
            reader = answer.parsed[0].reader
            return parsed_events(reader, self._passed, self._parsed, write, joined=True, numbers=self._numbers)
        delta = {"type": "response.output_text.delta", **answer.items.place, "content_index": 0}
        before = _head(delta["type"]) + orjson.dumps(delta)[:-1] + b',"delta":'
        texts = answer.items.texts.append
        return numbered_text_events(before, b',"logprobs":[]', self._numbers, write, texts, self._piece)

    def end(self, usage: Usage) -> bytes:
        """Make the event that ends the stream, with the whole response."""
        cut = self._answer.cut
        response = self._answer.ended(usage)
        return self._written([_whole("incomplete" if cut else "completed", response)])

    def error(self, error: OpenAIError) -> bytes:
        """Make the unsent events and the event of a failed response."""
        if not self._opened:  # the engine has not responded
            self._open()
        return self._unsent + self._written([_whole("failed", self._answer.failed(error))])

    def queued(self) -> bytes:
        """Make the events of a background response before the engine responds."""
        self._answer.announced = True
        response = self._answer.response("queued")
        return self._written([_whole("created", response), _whole("queued", response)])

    def _open(self) -> None:
        self._opened = True
        begun = self._answer.response("in_progress")
        events = [
            _whole(name, begun) for name in (("in_progress",) if self._answer.announced else ("created", "in_progress"))
        ]
        self._answer.announced = True
        self._unsent = self._written(events)

    def _passed(self) -> PassthroughTemplate | None:
        """Make the events around unparsed text; None before its item is open, and where all text is parsed."""
        choice, items = self._answer.parsed[0], self._answer.items
        passing = choice.reader.passing
        delta = None if passing is None else items.delta(passing.kind)
        if passing is None or delta is None:
            return None
        before, after = orjson.dumps(delta)[:-1].rsplit(b'""', 1)
        return PassthroughTemplate((_head(delta["type"]) + before, after), (choice.texts(passing.kind), items.texts))

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
    """Make the event that ends the stream of a stored response.

    OpenAI has no event of a cancelled response: it gets that of an incomplete one.

    Args:
        status: status of the response.
        response: the whole response.
        number: sequence number of the event.
    """
    event = _whole("incomplete" if status == "cancelled" else status, response)
    return _head(event["type"]) + orjson.dumps({**event, "sequence_number": number}) + b"\n\n"


def _whole(name: str, response: bytes) -> Event:
    return {"type": f"response.{name}", "response": orjson.Fragment(response)}


@functools.cache
def _head(kind: str) -> bytes:
    return b"event: " + kind.encode() + b"\ndata: "
