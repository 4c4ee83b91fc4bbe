"""Running generations become a stream of events."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator

from gateway.config import TimeoutSettings
from gateway.generation import EngineError, Piece, Usage
from gateway.openai.chat.chunks import error_event
from gateway.openai.completions.answer import Answer, completion_id
from gateway.openai.completions.chunks import ChunkWriter
from gateway.openai.errors import from_engine
from gateway.openai.obfuscation import obfuscated
from gateway.openai.usage import at_beginning
from gateway.serving.pieces import Forward
from gateway.web.record import RequestRecord
from gateway.web.sse import COMMENT


async def stream_answer(
    answer: Answer, record: RequestRecord, timeouts: TimeoutSettings
) -> AsyncGenerator[bytes, None]:
    """Yield ready events, everything that is ready at once; comments while the engine is silent.

    The first bytes come with the engine's first response, or after ``headers_s`` of waiting for it.

    Raises:
        EngineError: when a generation fails before the first bytes. Afterwards its error is the last event.
    """
    writer = _writer(answer)
    padded = answer.request.obfuscated
    plain = len(answer.choices) == 1 and answer.choices[0].plain and not (writer.wants_usage or padded)
    async with answer.running() as running:
        begun = ended = False
        try:
            timeout = timeouts.headers_s
            while not await running.responded(timeout):
                begun, timeout = True, timeouts.keepalive_s
                yield COMMENT
            opened: set[int] = set()
            forward: Forward | None = None
            while (ready := await running.ready(timeouts.keepalive_s, forward)) is not None:
                # Once for all that is ready: counting over many choices takes its time.
                usage = answer.usage(running) if writer.wants_usage else None
                events = b"".join([_events(answer, writer, usage, found, opened) for found in ready])
                begun = begun or bool(events)
                if events or not ready:
                    yield (obfuscated(events) if padded else events) or COMMENT
                if forward is None and opened and record.write is not None and plain:
                    forward = writer.forward(record.write)
            ended = True
            answer.note(record, running, ended=True)
            record.ending = True
            last = writer.end(answer.usage(running))
            yield obfuscated(last) if padded else last
        except EngineError as error:
            if not begun:
                raise
            failure = from_engine(error, record.names)
            record.error = failure.code or failure.type
            answer.note(record, running, ended=False)
            error.__traceback__ = None  # its frames lead to the generation, which keeps the error
            yield error_event(failure)
        finally:
            if not ended:
                answer.note(record, running, ended=False)


def _events(
    answer: Answer, writer: ChunkWriter, usage: Usage | None, found: tuple[int, list[Piece], bool], opened: set[int]
) -> bytes:
    """The events of what one choice has ready."""
    index, pieces, complete = found
    choice = answer.choices[index]
    events = b""
    if index not in opened:
        opened.add(index)
        text, rows = choice.opening()
        extras = choice.prompt_extras()
        if text or rows or extras:
            before = usage if usage is None or len(opened) > 1 else at_beginning(usage)
            events = writer.choice(index, text, before, logprobs=choice.logprobs(rows), extra=extras)
    for piece in pieces:
        text, rows = choice.take([piece])
        extras = choice.new_extras()
        if text or rows or extras:
            events += writer.choice(index, text, usage, logprobs=choice.logprobs(rows) if rows else None, extra=extras)
    if complete:
        extra = {"stop_reason": choice.stop_reason}
        events += writer.choice(index, "", usage, finish_reason=choice.finish_reason, extra=extra)
    return events


def _writer(answer: Answer) -> ChunkWriter:
    options = answer.request.stream_options
    return ChunkWriter(
        completion_id(),
        int(time.time()),
        answer.request.model,
        include_usage=options is not None and options.include_usage,
        continuous=options is not None and options.continuous_usage_stats,
    )
