"""Running generations become a stream of events or one body."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from gateway.config import TimeoutSettings
from gateway.generation import EngineError, Piece, TokenLogprob
from gateway.openai.chat.choosing import best
from gateway.openai.chat.chunks import ChunkWriter, error_event
from gateway.openai.chat.completion import Choice, completion_body, prompt_logprobs_list
from gateway.openai.chat.protocol import ChatCompletionRequest
from gateway.openai.errors import from_engine
from gateway.serving.choices import Choices
from gateway.serving.running import RunningGeneration
from gateway.web.record import RequestRecord
from gateway.web.sse import COMMENT


def _completion_id() -> str:
    return f"chatcmpl-{uuid.uuid4().hex}"


def _tier(request: ChatCompletionRequest) -> str | None:
    """The only tier there is, where the request spoke of tiers."""
    return None if request.service_tier is None else "default"


def _note(record: RequestRecord, running: Choices, *, ended: bool) -> None:
    """Tell the access log what became of the generations."""
    usage = running.usage()
    record.ttft_s = running.ttft_s
    record.prompt_tokens = usage.prompt_tokens
    record.completion_tokens = usage.completion_tokens
    record.finish_reason = ",".join(dict.fromkeys(running.finish_reasons)) if ended else None


async def whole_answer(
    generations: Sequence[RunningGeneration], request: ChatCompletionRequest, record: RequestRecord
) -> bytes:
    """Run the generations to their end and return the body.

    Raises:
        EngineError: when one fails; nothing of a part of an answer is returned.
    """
    created = int(time.time())
    texts: list[list[str]] = [[request.echoed()] for _ in generations]
    logprobs: list[list[TokenLogprob]] = [[] for _ in generations]
    async with Choices(generations) as running:
        ended = False
        try:
            while (ready := await running.ready()) is not None:
                for index, pieces, _ in ready:
                    for piece in pieces:
                        texts[index].append(piece.text)
                        logprobs[index] += piece.logprobs
            ended = True
        finally:
            _note(record, running, ended=ended)
    choices = [
        Choice(
            "".join(texts[index]),
            generations[index].assembler.finish_reason,
            logprobs[index] if request.logprobs else None,
            generations[index].assembler.token_ids if request.return_token_ids else None,
        )
        for index in best(logprobs, request.n)
    ]
    extras = _extras(generations[0], request)
    return completion_body(
        _completion_id(), created, request.model, choices=choices, usage=running.usage(), extras=extras
    )


def _extras(generation: RunningGeneration, request: ChatCompletionRequest) -> dict[str, Any]:
    extras: dict[str, Any] = {}
    if (tier := _tier(request)) is not None:
        extras["service_tier"] = tier
    if request.return_token_ids:
        extras["prompt_token_ids"] = generation.request.prompt.ids
    if request.prompt_logprobs is not None:
        extras["prompt_logprobs"] = prompt_logprobs_list(generation.assembler.prompt_entries())
    return extras


async def stream_answer(
    generations: Sequence[RunningGeneration],
    request: ChatCompletionRequest,
    record: RequestRecord,
    timeouts: TimeoutSettings,
) -> AsyncGenerator[bytes, None]:
    """Yield ready events, everything that is ready at once; comments while the engine is silent.

    The first bytes come with the engine's first response, or after ``headers_s`` of waiting for it.

    Raises:
        EngineError: when a generation fails before the first bytes. Afterwards its error is the last event.
    """
    writer = _writer(request)
    async with Choices(generations) as running:
        begun = ended = False
        try:
            timeout = timeouts.headers_s
            while not await running.responded(timeout):
                begun, timeout = True, timeouts.keepalive_s
                yield COMMENT
            events = _opening(writer, running, request)
            begun = True
            while (more := await _next(writer, running, timeouts.keepalive_s)) is not None:
                yield events + more or COMMENT
                events = b""
            ended = True
            _note(record, running, ended=True)
            yield events + _end(writer, running)
        except EngineError as error:
            if not begun:
                raise
            failure = from_engine(error)
            record.error = failure.code or failure.type
            _note(record, running, ended=False)
            yield error_event(failure)
        finally:
            if not ended:
                _note(record, running, ended=False)


def _writer(request: ChatCompletionRequest) -> ChunkWriter:
    options = request.stream_options
    return ChunkWriter(
        _completion_id(),
        int(time.time()),
        request.model,
        include_usage=options is not None and options.include_usage,
        continuous_usage=options is not None and options.continuous_usage_stats,
        choices=request.n,
        service_tier=_tier(request),
    )


def _opening(writer: ChunkWriter, running: Choices, request: ChatCompletionRequest) -> bytes:
    """The first chunk of every choice, and the text that it continues where that is wanted."""
    usage = running.usage() if writer.wants_usage else None
    prompt_ids = running.generations[0].request.prompt.ids if request.return_token_ids else None
    echoed = request.echoed()
    events = b""
    for index in range(request.n):
        events += writer.role(index, None if index else prompt_ids, usage)
        if echoed:
            events += writer.piece(index, Piece(echoed), usage)
    return events


def _end(writer: ChunkWriter, running: Choices) -> bytes:
    """The last events: the end of a choice that had none yet, and what ends the stream."""
    last = b"" if running.done else writer.end(0, running.finish_reasons[0])
    return last + writer.close(running.usage())


async def _next(writer: ChunkWriter, running: Choices, timeout: float) -> bytes | None:
    """The events of what became ready; none after ``timeout`` seconds of silence, None when all choices ended."""
    generations = running.generations
    if len(generations) == 1 and not writer.wants_usage:  # the common case, kept short
        pieces = await generations[0].pieces(timeout)
        if pieces is None:
            return None
        return b"".join([writer.piece(0, piece) for piece in pieces])
    ready = await running.ready(timeout)
    if ready is None:
        return None
    usage = running.usage() if writer.wants_usage else None
    parts = []
    for index, pieces, complete in ready:
        parts += [writer.piece(index, piece, usage) for piece in pieces]
        if complete:
            parts.append(writer.end(index, generations[index].assembler.finish_reason, usage))
    return b"".join(parts)
