"""The events of a streamed chat answer."""

from __future__ import annotations

import time
from collections.abc import Sequence

from gateway.generation import Piece, Usage
from gateway.openai.answering import error_event
from gateway.openai.chat.answer import ChatAnswer, completion_id
from gateway.openai.chat.chunks import ChunkWriter
from gateway.openai.errors import OpenAIError
from gateway.openai.usage import at_beginning
from gateway.relay.interface import Forward, Write
from gateway.relay.text_events import made_events
from gateway.serving.generation_group import GenerationGroup, Ready


class ChatEvents:
    """The events of one stream; see ``gateway.openai.answering.Events``."""

    def __init__(self, answer: ChatAnswer) -> None:
        """Begin before anything was generated."""
        request = answer.request
        options = request.stream_options
        self._answer = answer
        self._writer = ChunkWriter(
            completion_id(),
            int(time.time()),
            request.model,
            include_usage=options is not None and options.include_usage,
            continuous_usage=options is not None and options.continuous_usage_stats,
            choices=request.n,
            service_tier=request.tier,
            names_as_ids=request.return_tokens_as_token_ids,
        )
        # The text of each choice, where it must be checked and no parser collects it.
        collected = bool(answer.expectations) and not answer.parsed
        self._texts: list[list[str]] | None = [[] for _ in answer.generations] if collected else None

    def opening(self) -> bytes:
        """The first chunk of every choice, and the text that it continues where that is wanted."""
        answer, writer, request = self._answer, self._writer, self._answer.request
        usage = at_beginning(answer.generations[0].assembler.usage) if writer.wants_usage else None
        prompt_ids = answer.generations[0].request.prompt.ids if request.return_token_ids else None
        events = b""
        for index in range(request.n):
            events += writer.role(index, None if index else prompt_ids, usage, calls=answer.calls)
            if request.echoed:
                events += writer.piece(index, Piece(request.echoed), usage)
        return events

    def take(self, ready: Ready, group: GenerationGroup) -> bytes:
        """The chunks of all that became ready.

        Raises:
            OpenAIError: when a choice that has ended is not what was asked for.
        """
        writer = self._writer
        usage = self._answer.usage(group) if writer.wants_usage else None
        parts: list[bytes] = []
        for index, pieces, complete in ready:
            extras = None
            if self._answer.parsed:
                parts += self._parse(index, pieces, usage, complete=complete)
                extras = self._answer.parsed[index].extras() if complete else None
            else:
                if self._texts is not None:
                    self._texts[index] += [piece.text for piece in pieces]
                parts += [writer.piece(index, piece, usage) for piece in pieces]
            if complete:
                self._check(index)
                assembler = group.generations[index].assembler
                reasons = self._answer.finish_reason(index), assembler.stop_reason
                parts.append(writer.last(index, *reasons, extras, usage, estimated=assembler.finish_estimated))
        return b"".join(parts)

    def forward(self, write: Write) -> Forward | None:
        """See the base."""
        answer = self._answer
        special = self._writer.wants_usage or self._texts is not None or answer.padded
        if special or len(answer.generations) > 1:
            return None
        return made_events(self._parsed, write) if answer.parsed else self._writer.forward(write)

    def end(self, usage: Usage) -> bytes:
        """The events that end the stream."""
        return self._writer.close(usage)

    def error(self, error: OpenAIError) -> bytes:
        """The event of an error, in OpenAI's shape."""
        return error_event(error)

    def _parsed(self, pieces: Sequence[Piece | str]) -> bytes:
        """The chunks of the only choice, which is parsed; its reader has taken the texts."""
        choice = self._answer.parsed[0]
        if isinstance(pieces[0], str) and not choice.waiting.logprobs:
            return self._writer.texts(*choice.texts())
        return b"".join(self._parse(0, [piece for piece in pieces if not isinstance(piece, str)], None, complete=False))

    def _parse(self, index: int, pieces: Sequence[Piece], usage: Usage | None, *, complete: bool) -> list[bytes]:
        """The chunks of a choice that is parsed; log-prob entries and ids ride with the next of them."""
        choice = self._answer.parsed[index]
        for piece in pieces:
            choice.waiting.logprobs += piece.logprobs
            if choice.waiting.ids is not None and piece.ids is not None:
                choice.waiting.ids += piece.ids
        if complete:
            self._answer.close(index)
        return [self._writer.delta(index, delta, choice.extras(), usage) for delta in choice.take(complete=complete)]

    def _check(self, index: int) -> None:
        failure = self._answer.failure(index, "" if self._texts is None else "".join(self._texts[index]))
        if failure is not None:
            raise failure
