"""Running generations become a stream of events."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Sequence

from gateway.config import TimeoutSettings
from gateway.generation import EngineError, Piece, Usage
from gateway.openai.chat.answer import ChatAnswer, completion_id, note, tier
from gateway.openai.chat.chunks import ChunkWriter, Extras, error_event
from gateway.openai.chat.protocol import ChatCompletionRequest
from gateway.openai.errors import OpenAIError, from_engine
from gateway.openai.obfuscation import obfuscated
from gateway.openai.usage import at_beginning
from gateway.serving.choices import Choices
from gateway.serving.pieces import Forward, PieceWithIds
from gateway.web.record import RequestRecord
from gateway.web.sse import COMMENT


async def stream_answer(
    answer: ChatAnswer, record: RequestRecord, timeouts: TimeoutSettings
) -> AsyncGenerator[bytes, None]:
    """Yield ready events, everything that is ready at once; comments while the engine is silent.

    The first bytes come with the engine's first response, or after ``headers_s`` of waiting for it.

    Raises:
        EngineError: when a generation fails before the first bytes. Afterwards its error is the last event.
    """
    writer = _writer(answer.request)
    async with Choices(answer.generations) as running:
        events = _Events(answer, running, writer, record)
        begun = ended = False
        try:
            timeout = timeouts.headers_s
            while not await running.responded(timeout):
                begun, timeout = True, timeouts.keepalive_s
                yield COMMENT
            waiting = events.opening()
            begun = True
            quiet_since = time.monotonic()
            # Nothing may overtake the opening, which goes with the first text.
            while (more := await events.next(timeouts.keepalive_s, forwards=not waiting)) is not None:
                # A call that is held back makes no event of its tokens, however many they are.
                if waiting or more or time.monotonic() - quiet_since >= timeouts.keepalive_s:
                    yield events.finished(waiting + more) or COMMENT
                    waiting, quiet_since = b"", time.monotonic()
            ended = True
            note(record, running, answer, ended=True)
            last = waiting + events.end()
            record.ending = True
            yield events.finished(last)
        except (EngineError, OpenAIError) as error:
            if not begun:
                raise
            failure = from_engine(error, record.names) if isinstance(error, EngineError) else error
            record.error = failure.code or failure.type
            if not ended:
                note(record, running, answer, ended=False)
                ended = True
            error.__traceback__ = None  # its frames lead to the generation, which keeps the error
            yield error_event(failure)
        finally:
            if not ended:
                note(record, running, answer, ended=False)


def _writer(request: ChatCompletionRequest) -> ChunkWriter:
    options = request.stream_options
    return ChunkWriter(
        completion_id(),
        int(time.time()),
        request.model,
        include_usage=options is not None and options.include_usage,
        continuous_usage=options is not None and options.continuous_usage_stats,
        choices=request.n,
        service_tier=tier(request),
        names_as_ids=request.return_tokens_as_token_ids,
    )


class _Events:
    """The events of one stream."""

    def __init__(self, answer: ChatAnswer, running: Choices, writer: ChunkWriter, record: RequestRecord) -> None:
        self._answer = answer
        self._record = record
        self._running = running
        self._writer = writer
        # What was shown, where it must be checked and nothing else collects it.
        collected = answer.expectations and not answer.read
        self._texts: list[list[str]] | None = [[] for _ in answer.generations] if collected else None
        self._forward: Forward | None = None
        self._obfuscated = answer.request.obfuscated
        special = writer.wants_usage or answer.read or collected or self._obfuscated
        self._plain = len(answer.generations) == 1 and not special

    def opening(self) -> bytes:
        """The first chunk of every choice, and the text that it continues where that is wanted."""
        answer, writer, request = self._answer, self._writer, self._answer.request
        usage = None if (usage := self._usage()) is None else at_beginning(usage)
        prompt_ids = answer.generations[0].request.prompt.ids if request.return_token_ids else None
        echoed = request.echoed()
        events = b""
        for index in range(request.n):
            events += writer.role(index, None if index else prompt_ids, usage, calls=answer.calls)
            if echoed:
                events += writer.piece(index, Piece(echoed), usage)
        return events

    async def next(self, timeout: float, *, forwards: bool) -> bytes | None:
        """The events of what became ready; none after ``timeout`` seconds of silence, None when all choices ended.

        Args:
            timeout: in seconds.
            forwards: whether events may be written before this returns.

        Raises:
            OpenAIError: when a choice that ended is not what was asked for.
        """
        writer = self._writer
        if self._plain:  # the common case, kept short
            if self._forward is None and self._record.write is not None:
                self._forward = writer.forward(self._record.write)
            forward = self._forward if forwards else None
            pieces = await self._answer.generations[0].pieces(timeout, forward)
            if pieces is None:
                return None
            return b"".join([writer.piece(0, piece) for piece in pieces])
        ready = await self._running.ready(timeout)
        if ready is None:
            return None
        usage = self._usage()
        parts: list[bytes] = []
        for index, pieces, complete in ready:
            if self._answer.read:
                parts += self._read(index, pieces, usage, complete=complete)
                continue
            if self._texts is not None:
                self._texts[index] += [piece.text for piece in pieces]
            parts += [writer.piece(index, piece, usage) for piece in pieces]
            if complete:
                self._check(index)
                parts.append(self._last(index, usage))
        return b"".join(parts)

    def end(self) -> bytes:
        """The last events: the end of a choice that had none yet, and what ends the stream."""
        last = b"" if self._running.done else self._last(0)
        return last + self._writer.close(self._answer.usage(self._running))

    def finished(self, events: bytes) -> bytes:
        """The events as they are sent: padded where that is wanted."""
        return obfuscated(events) if self._obfuscated else events

    def _usage(self) -> Usage | None:
        return self._answer.usage(self._running) if self._writer.wants_usage else None

    def _read(self, index: int, pieces: Sequence[Piece], usage: Usage | None, *, complete: bool) -> list[bytes]:
        """The chunks of a choice that is read; entries and ids ride with the next of them."""
        choice = self._answer.read[index]
        for piece in pieces:
            choice.waiting.logprobs += piece.logprobs
            if choice.waiting.ids is not None and isinstance(piece, PieceWithIds):
                choice.waiting.ids += piece.ids
        if complete:
            choice.reader.close(cut=self._answer.generations[index].assembler.finish_reason == "length")
        parts = [self._writer.delta(index, delta, choice.extras(), usage) for delta in choice.take()]
        if complete:
            self._check(index)
            parts.append(self._last(index, usage, choice.extras()))
        return parts

    def _last(self, index: int, usage: Usage | None = None, extras: Extras | None = None) -> bytes:
        """The last chunk of a choice."""
        reasons = self._answer.finish_reason(index), self._answer.stop_reason(index)
        return self._writer.last(index, *reasons, extras, usage)

    def _check(self, index: int) -> None:
        failure = self._answer.failure(index, "" if self._texts is None else "".join(self._texts[index]))
        if failure is not None:
            raise failure
