"""The answer to a completion request: its whole body, or the events of its stream."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

import anyio.to_thread
import orjson

from gateway.api.openai.chat.answer import ChoiceEvents, ChunkWriter, answer_head
from gateway.api.openai.completions.choice import ChoiceReader, LogprobRow
from gateway.api.openai.completions.protocol import CompletionRequest
from gateway.api.openai.endpoint import PendingAnswer, best
from gateway.api.openai.errors import Names
from gateway.api.usage import completion_usage
from gateway.generation import Piece, Usage
from gateway.generation.relay.interface import Forward, Write
from gateway.generation.relay.text_events import text_events
from gateway.serving.generation import Ready
from gateway.serving.generation_group import Generations


class CompletionAnswer(PendingAnswer):
    """An answer to a completion request.

    Attributes:
        request: the request.
        choices: one for each generation, those of the first prompt first.
        created: Unix time.
    """

    __slots__ = ("_rows", "_texts", "choices", "created", "request")

    def __init__(self, request: CompletionRequest, choices: Sequence[ChoiceReader], names: Names) -> None:
        """Take choices whose generations have not begun."""
        super().__init__([choice.running for choice in choices], names, padded=request.obfuscated)
        self.request = request
        self.choices = choices
        self.created = int(time.time())
        self._texts: list[list[str]] = [[] for _ in choices]
        self._rows: list[list[LogprobRow]] = [[] for _ in choices]

    def take(self, index: int, pieces: Sequence[Piece], *, complete: bool) -> None:
        """Add pieces to a choice's text and log-prob rows."""
        del complete
        text, rows = self.choices[index].take(pieces)
        self._texts[index].append(text)
        self._rows[index] += rows

    def usage(self, group: Generations) -> Usage:
        """Count tokens so far, without the one token that the engine generates for ``max_tokens: 0``."""
        usage = group.usage()
        nothing = self.request.max_tokens == 0
        return dataclasses.replace(usage, completion_tokens=0, estimated=False) if nothing else usage

    def finish_reasons(self) -> list[str]:
        """The finish reason of each choice; valid at the end."""
        return [choice.finish_reason for choice in self.choices]

    async def body(self, group: Generations) -> bytes:
        """Make the ``text_completion`` object."""
        usage = self._noted or self.usage(group)
        if self.request.logprobs is None:
            return self._body(usage)
        return await anyio.to_thread.run_sync(self._body, usage)  # takes about a second for a long prompt

    def _body(self, usage: Usage) -> bytes:
        return orjson.dumps(
            {
                **answer_head("cmpl", "text_completion", self.request.model, self.created),
                "choices": [self._choice(place, index) for place, index in enumerate(self._shown())],
                "usage": completion_usage(usage),
            }
        )

    def _choice(self, place: int, index: int) -> dict[str, Any]:
        choice = self.choices[index]
        opening, first = choice.opening()
        return {
            "index": place,
            "text": opening + "".join(self._texts[index]),
            "logprobs": choice.logprobs(first + self._rows[index]),
            "finish_reason": choice.finish_reason,
            **choice.finish_marks,
            **choice.prompt_extras(),
            **choice.new_extras(),
        }

    def _shown(self) -> list[int]:
        """The choices that are shown, in order: of each prompt the best candidates."""
        shown: list[int] = []
        candidates = self.request.candidates
        for start in range(0, len(self.choices), candidates):
            scores = [choice.mean_logprob for choice in self.choices[start : start + candidates]]
            shown += [start + index for index in best(scores, self.request.n)]
        return shown


class CompletionChunkWriter(ChunkWriter):
    """Writes the chunks of one completion."""

    __slots__ = ()

    def choice(
        self,
        index: int,
        text: str,
        usage: Usage | None = None,
        *,
        logprobs: dict[str, Any] | None = None,
        finish_reason: str | None = None,
        extra: dict[str, Any] | None = None,
    ) -> bytes:
        """Make a chunk of one choice.

        Args:
            index: of the choice.
            text: new text.
            usage: so far, where it is wanted.
            logprobs: lists of the tokens whose text this is.
            finish_reason: on the last chunk of the choice.
            extra: further fields of the choice.
        """
        choice = {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish_reason, **(extra or {})}
        return self._head + orjson.dumps(choice) + self._closing(usage)

    def forward(self, write: Write) -> Forward:
        """Make the function that immediately writes the text of pieces of the only choice.

        Args:
            write: takes events on one line each.
        """
        after = b',"logprobs":null,"finish_reason":null}' + self._close
        return text_events(self._head + b'{"index":0,"text":', after, write)


class CompletionEvents(ChoiceEvents[CompletionChunkWriter]):
    """Writes the events of a completion stream."""

    def __init__(self, answer: CompletionAnswer) -> None:
        """Begin before anything was generated."""
        request = answer.request
        self._answer = answer
        self._opened: set[int] = set()
        head = answer_head("cmpl", "text_completion", request.model, answer.created)
        self._writer = CompletionChunkWriter(head, request.stream_options)

    def opening(self) -> bytes:
        """Make no event: each choice opens with its first text, when the prompt's log-probs are known."""
        return b""

    def take(self, ready: Ready, group: Generations) -> bytes:
        """Make the chunks of the output that became ready.

        Raises:
            EngineError: the engine did not return the prompt's log-probs.
        """
        # Once for all that is ready: counting over many choices takes its time.
        usage = self._answer.usage(group) if self._writer.wants_usage else None
        return b"".join([self._take(index, pieces, usage, complete=complete) for index, pieces, complete in ready])

    def forward(self, write: Write) -> Forward | None:
        """Write pieces as chunks; None before the opening, and for several choices or more than text."""
        special = self._writer.wants_usage or self._answer.padded or not self._opened
        plain = len(self._answer.choices) == 1 and self._answer.choices[0].plain and not special
        return self._writer.forward(write) if plain else None

    def _take(self, index: int, pieces: Sequence[Piece], usage: Usage | None, *, complete: bool) -> bytes:
        """The chunks of what one choice has ready."""
        choice, writer = self._answer.choices[index], self._writer
        events = b""
        if index not in self._opened:
            self._opened.add(index)
            text, rows = choice.opening()
            extras = choice.prompt_extras()
            if text or rows or extras:
                extras |= choice.new_extras()
                before = usage if usage is None or len(self._opened) > 1 else usage.at_beginning()
                events = writer.choice(index, text, before, logprobs=choice.logprobs(rows), extra=extras)
        for piece in pieces:
            text, rows = choice.take([piece])
            extras = choice.new_extras()
            if text or rows or extras:
                logprobs = choice.logprobs(rows) if rows else None
                events += writer.choice(index, text, usage, logprobs=logprobs, extra=extras)
        if complete:
            extras = choice.finish_marks | choice.new_extras()
            events += writer.choice(index, "", usage, finish_reason=choice.finish_reason, extra=extras)
        return events
