"""The events of a streamed completion."""

from __future__ import annotations

import time
from collections.abc import Sequence

from gateway.generation import Piece, Usage
from gateway.openai.answering import error_event
from gateway.openai.completions.answer import CompletionAnswer, completion_id
from gateway.openai.completions.chunks import ChunkWriter
from gateway.openai.errors import OpenAIError
from gateway.openai.usage import at_beginning
from gateway.relay.interface import Forward, Write
from gateway.serving.generation_group import GenerationGroup, Ready


class CompletionEvents:
    """The events of one stream; see ``gateway.openai.answering.Events``."""

    def __init__(self, answer: CompletionAnswer) -> None:
        """Begin before anything was generated."""
        options = answer.request.stream_options
        self._answer = answer
        self._opened: set[int] = set()
        self._writer = ChunkWriter(
            completion_id(),
            int(time.time()),
            answer.request.model,
            include_usage=options is not None and options.include_usage,
            continuous=options is not None and options.continuous_usage_stats,
        )

    def opening(self) -> bytes:
        """None: each choice opens with its first text, when the log-probs of the prompt are there."""
        return b""

    def take(self, ready: Ready, group: GenerationGroup) -> bytes:
        """The chunks of all that became ready.

        Raises:
            EngineError: when the engine did not give the prompt's log-probs.
        """
        # Once for all that is ready: counting over many choices takes its time.
        usage = self._answer.usage(group) if self._writer.wants_usage else None
        return b"".join([self._take(index, pieces, usage, complete=complete) for index, pieces, complete in ready])

    def forward(self, write: Write) -> Forward | None:
        """See the base."""
        special = self._writer.wants_usage or self._answer.padded or not self._opened
        plain = len(self._answer.choices) == 1 and self._answer.choices[0].plain and not special
        return self._writer.forward(write) if plain else None

    def end(self, usage: Usage) -> bytes:
        """The events that end the stream."""
        return self._writer.end(usage)

    def error(self, error: OpenAIError) -> bytes:
        """The event of an error, in OpenAI's shape."""
        return error_event(error)

    def _take(self, index: int, pieces: Sequence[Piece], usage: Usage | None, *, complete: bool) -> bytes:
        """The chunks of what one choice has ready."""
        choice, writer = self._answer.choices[index], self._writer
        events = b""
        if index not in self._opened:
            self._opened.add(index)
            text, rows = choice.opening()
            extras = choice.prompt_extras()
            if text or rows or extras:
                before = usage if usage is None or len(self._opened) > 1 else at_beginning(usage)
                events = writer.choice(index, text, before, logprobs=choice.logprobs(rows), extra=extras)
        for piece in pieces:
            text, rows = choice.take([piece])
            extras = choice.new_extras()
            if text or rows or extras:
                logprobs = choice.logprobs(rows) if rows else None
                events += writer.choice(index, text, usage, logprobs=logprobs, extra=extras)
        if complete:
            events += writer.choice(index, "", usage, finish_reason=choice.finish_reason, extra=choice.finish_marks)
        return events
