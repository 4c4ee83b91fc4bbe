"""Answers over running generations, whole or as a stream, the same for every endpoint that generates."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Protocol

from gateway.config import TimeoutSettings
from gateway.generation import EngineError, Piece, PromptTokenLogprob, Usage
from gateway.openai.errors import OpenAIError, from_engine
from gateway.openai.obfuscation import obfuscated
from gateway.relay.interface import Forward, StreamOutput, Write
from gateway.serving.generation import Generation
from gateway.serving.generation_group import GenerationGroup, Ready
from gateway.web.access_log import RequestRecord
from gateway.web.sse import COMMENT

DONE = b"data: [DONE]\n\n"


class Events(Protocol):
    """The Server-Sent Events of one streamed answer."""

    def opening(self) -> bytes:
        """The events before the first text; they are sent together with it."""
        ...

    def take(self, ready: Ready, group: GenerationGroup) -> bytes:
        """The events of all that became ready.

        Raises:
            OpenAIError: when a choice that has ended is not what was asked for.
        """
        ...

    def forward(self, write: Write) -> Forward | None:
        """A function that writes pieces of text at once, by the relay; None where events have more than their text.

        Args:
            write: takes events on one line each.
        """
        ...

    def end(self, usage: Usage) -> bytes:
        """The events that end the stream."""
        ...

    def error(self, error: OpenAIError) -> bytes:
        """The event that ends a stream which has already begun and breaks off."""
        ...


class Answer(ABC):
    """An answer that is about to be generated.

    Attributes:
        generations: those of the first prompt first.
        names: the request's names of parameters that errors of the engine call otherwise.
        padded: whether the events of its stream are padded.
        kept: whether its end is written somewhere before the client is told of it.
    """

    __slots__ = ("generations", "kept", "names", "padded")

    def __init__(self, generations: Sequence[Generation], names: Mapping[str, str], *, padded: bool = False) -> None:
        """Take generations that have not begun."""
        self.generations = generations
        self.names = names
        self.padded = padded
        self.kept = False

    @abstractmethod
    def take(self, index: int, pieces: Sequence[Piece], *, complete: bool) -> None:
        """Collect pieces of a choice for the whole answer."""

    @abstractmethod
    async def body(self, group: GenerationGroup) -> bytes:
        """The body of the whole answer.

        Raises:
            OpenAIError: when a choice is not what was asked for.
        """

    @abstractmethod
    def finish_reasons(self) -> Sequence[str]:
        """The finish reason of each choice; valid at the end."""

    async def keep(self, usage: Usage | None) -> None:  # noqa: B027 - most answers are not kept
        """Write the end of a streamed answer, if it is ``kept``.

        Args:
            usage: of all of it; None where an error has ended it, which its events have told.

        Raises:
            OpenAIError: it cannot be written. Not after an error.
        """

    def leave(self) -> None:  # noqa: B027 - as above
        """Write that the client of a streamed answer has left, if it is ``kept``; without effect after its end."""

    def usage(self, group: GenerationGroup) -> Usage:
        """Token counts so far."""
        return group.usage()

    def note(self, record: RequestRecord, group: GenerationGroup, *, ended: bool) -> Usage:
        """Write into the record of the access log what became of the generations; returns the token counts."""
        usage = self.usage(group)
        record.ttft_s = group.ttft_s
        record.endpoint = group.address
        record.prompt_tokens = usage.prompt_tokens
        record.completion_tokens = usage.completion_tokens
        record.finish_reason = ",".join(dict.fromkeys(self.finish_reasons())) if ended else None
        return usage


async def whole(answer: Answer, record: RequestRecord) -> bytes:
    """Run the generations to their end and return the body.

    Raises:
        OpenAIError: when one fails, or an answer is not what was asked for; no part of an answer is returned.
    """
    try:
        return await _whole(answer, record)
    except EngineError as error:
        error.__traceback__ = None  # its frames lead to the generation, which keeps the error
        raise from_engine(error, answer.names) from None


async def _whole(answer: Answer, record: RequestRecord) -> bytes:
    async with GenerationGroup(answer.generations) as group:
        ended = False
        try:
            while (ready := await group.ready()) is not None:
                for index, pieces, complete in ready:
                    answer.take(index, pieces, complete=complete)
            ended = True
        finally:
            answer.note(record, group, ended=ended)
    return await answer.body(group)


async def stream(
    answer: Answer, events: Events, output: StreamOutput, record: RequestRecord, timeouts: TimeoutSettings
) -> AsyncGenerator[bytes, None]:
    """Yield ready events, everything that is ready at once; comments while the engine is silent.

    The first bytes come with the engine's first response, or after ``headers_s`` of waiting for it.

    Raises:
        OpenAIError: when a generation fails before the first bytes. Afterwards its error is the last event.
    """
    finished = obfuscated if answer.padded else bytes
    async with GenerationGroup(answer.generations) as group:
        notes = _Notes(answer, record, group)
        begun = False
        try:
            timeout = timeouts.headers_s
            while not await group.wait_for_response(timeout):
                begun, timeout = True, timeouts.keepalive_s
                yield COMMENT
            waiting = events.opening()
            begun = begun or bool(waiting)
            quiet_since = time.monotonic()
            forward: Forward | None = None
            while True:
                # Nothing may overtake the opening, which goes with the first text.
                more = events.take(await group.ready(timeouts.keepalive_s, None if waiting else forward) or [], group)
                if group.done:
                    break
                # A call that is held back makes no event of its tokens, however many they are.
                if waiting or more or time.monotonic() - quiet_since >= timeouts.keepalive_s:
                    begun = True
                    yield finished(waiting + more) or COMMENT
                    waiting, quiet_since = b"", time.monotonic()
                    if forward is None and (write := output.writer()) is not None:
                        forward = events.forward(write)
            usage, last = notes.take(ended=True), waiting + more
            if answer.kept and last:  # what has been generated does not wait for what only the end waits for
                yield finished(last)
                last = b""
            await answer.keep(usage)
            last += events.end(usage)
            output.ending = True
            yield finished(last)
        except (EngineError, OpenAIError) as error:
            failure = from_engine(error, answer.names) if isinstance(error, EngineError) else error
            error.__traceback__ = None  # its frames lead to the generation, which keeps the error
            if not begun:
                try:
                    raise failure from None
                finally:
                    del failure  # or it would hold this frame, and this frame it
            record.error = failure.code or failure.type
            notes.take(ended=False)
            last = events.error(failure)
            await answer.keep(None)
            yield last
        finally:
            notes.take(ended=False)
            answer.leave()


class _Notes:
    """Writes what became of the generations into the record of the access log, once."""

    def __init__(self, answer: Answer, record: RequestRecord, group: GenerationGroup) -> None:
        self._answer, self._record, self._group = answer, record, group
        self._usage: Usage | None = None

    def take(self, *, ended: bool) -> Usage:
        """The usage at the end."""
        if self._usage is None:
            self._usage = self._answer.note(self._record, self._group, ended=ended)
        return self._usage


def error_event(error: OpenAIError) -> bytes:
    """The event that ends a stream which has already begun; no ``[DONE]`` follows it."""
    return b"data: " + error.body() + b"\n\n"


def best(scores: Sequence[float], n: int) -> list[int]:
    """The indices of the ``n`` candidates with the highest scores, best first; all in order where there are ``n``.

    Args:
        scores: log-prob per token of each candidate; minus infinity for one without tokens, of which nothing tells how
            likely it is.
        n: candidates to choose.
    """
    order = list(range(len(scores)))
    if n < len(order):
        order.sort(key=scores.__getitem__, reverse=True)
    return order[:n]


def prompt_logprobs_list(entries: Sequence[PromptTokenLogprob]) -> list[dict[str, Any] | None]:
    """``prompt_logprobs`` as vLLM writes it: for each token an object by token id, null for the first.

    ``rank`` is null where the engine does not say it and the token is not among the alternatives.
    """
    rows: list[dict[str, Any] | None] = []
    for entry in entries:
        if entry.logprob is None:
            rows.append(None)
            continue
        row = {str(entry.index): {"logprob": entry.logprob, "rank": entry.rank, "decoded_token": entry.token}}
        for rank, (index, token, _, logprob) in enumerate(entry.top, start=1):
            row[str(index)] = {"logprob": logprob, "rank": rank, "decoded_token": token}
        rows.append(row)
    return rows
