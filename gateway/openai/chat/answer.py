"""A running generation becomes a stream of events or one body."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncGenerator

from gateway.config import TimeoutSettings
from gateway.generation import EngineError, TokenLogprob
from gateway.openai.chat.chunks import ChunkWriter, error_event
from gateway.openai.chat.completion import completion_body
from gateway.openai.chat.protocol import ChatCompletionRequest
from gateway.openai.errors import from_engine
from gateway.serving.running import RunningGeneration
from gateway.web.record import RequestRecord
from gateway.web.sse import COMMENT


def _completion_id() -> str:
    return f"chatcmpl-{uuid.uuid4().hex}"


def _note(record: RequestRecord, running: RunningGeneration, *, ended: bool) -> None:
    """Tell the access log what became of the generation."""
    usage = running.assembler.usage
    record.ttft_s = running.ttft_s
    record.prompt_tokens = usage.prompt_tokens
    record.completion_tokens = usage.completion_tokens
    record.finish_reason = running.assembler.finish_reason if ended else None


async def whole_answer(generation: RunningGeneration, request: ChatCompletionRequest, record: RequestRecord) -> bytes:
    """Run the generation to its end and return the body.

    Raises:
        EngineError: when it fails; nothing of a part of an answer is returned.
    """
    created = int(time.time())
    texts: list[str] = []
    logprobs: list[TokenLogprob] = []
    async with generation as running:
        ended = False
        try:
            while (pieces := await running.pieces()) is not None:
                for piece in pieces:
                    texts.append(piece.text)
                    logprobs += piece.logprobs
            ended = True
        finally:
            _note(record, running, ended=ended)
    return completion_body(
        _completion_id(),
        created,
        request.model,
        text="".join(texts),
        logprobs=logprobs if request.logprobs else None,
        finish_reason=running.assembler.finish_reason,
        usage=running.assembler.usage,
    )


async def stream_answer(
    generation: RunningGeneration, request: ChatCompletionRequest, record: RequestRecord, timeouts: TimeoutSettings
) -> AsyncGenerator[bytes, None]:
    """Yield ready events, everything that is ready at once; comments while the engine is silent.

    The first bytes come with the engine's first response, or after ``headers_s`` of waiting for it.

    Raises:
        EngineError: when the generation fails before the first bytes. Afterwards its error is the last event.
    """
    options = request.stream_options
    writer = ChunkWriter(
        _completion_id(), int(time.time()), request.model, include_usage=options is not None and options.include_usage
    )
    async with generation as running:
        begun = ended = False
        try:
            timeout = timeouts.headers_s
            while not await running.responded(timeout):
                begun, timeout = True, timeouts.keepalive_s
                yield COMMENT
            opening = writer.role()
            begun = True
            while (pieces := await running.pieces(timeouts.keepalive_s)) is not None:
                if not pieces and not opening:
                    yield COMMENT
                    continue
                yield opening + b"".join([writer.piece(piece) for piece in pieces])
                opening = b""
            ended = True
            _note(record, running, ended=True)
            yield opening + writer.end(running.assembler.finish_reason, running.assembler.usage)
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
