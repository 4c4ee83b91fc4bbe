"""Answers over running generations, whole or as a stream, the same for every endpoint that generates."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any, Protocol

from gateway.config import TimeoutSettings
from gateway.generation import EngineError, Piece, PromptTokenLogprob, Usage
from gateway.openai.errors import OpenAIError, from_engine
from gateway.openai.obfuscation import obfuscated
from gateway.serving.choices import Choices, Ready
from gateway.serving.pieces import Forward
from gateway.serving.running import RunningGeneration
from gateway.web.record import RequestRecord, Room
from gateway.web.sse import COMMENT

DONE = b"data: [DONE]\n\n"


class Events(Protocol):
    """The Server-Sent Events of one streamed answer."""

    def opening(self) -> bytes:
        """The events before the first text; they are sent together with it."""
        ...

    def take(self, ready: Ready, running: Choices) -> bytes:
        """The events of all that became ready.

        Raises:
            OpenAIError: when a choice that has ended is not what was asked for.
        """
        ...

    def forward(self, write: Callable[[bytes], Room | None]) -> Forward | None:
        """A function that writes pieces of text at once, by the relay; None where events have more than their text.

        Args:
            write: takes events on one line each.
        """
        ...

    def end(self, running: Choices) -> bytes:
        """The events that end the stream."""
        ...


class Answer(ABC):
    """An answer that is about to be generated.

    Attributes:
        generations: those of the first prompt first.
        names: the request's names of parameters that errors of the engine call otherwise.
        padded: whether the events of its stream are padded.
    """

    __slots__ = ("generations", "names", "padded")

    def __init__(
        self, generations: Sequence[RunningGeneration], names: Mapping[str, str], *, padded: bool = False
    ) -> None:
        """Take generations that have not begun."""
        self.generations = generations
        self.names = names
        self.padded = padded

    @abstractmethod
    def take(self, index: int, pieces: Sequence[Piece], *, complete: bool) -> None:
        """Collect pieces of a choice for the whole answer."""

    @abstractmethod
    async def body(self, running: Choices) -> bytes:
        """The body of the whole answer.

        Raises:
            OpenAIError: when a choice is not what was asked for.
        """

    @abstractmethod
    def finish_reasons(self) -> Sequence[str]:
        """The finish reason of each choice; valid at the end."""

    def usage(self, running: Choices) -> Usage:
        """Token counts so far."""
        return running.usage()

    def note(self, record: RequestRecord, running: Choices, *, ended: bool) -> None:
        """Write into the record of the access log what became of the generations."""
        usage = self.usage(running)
        record.ttft_s = running.ttft_s
        record.prompt_tokens = usage.prompt_tokens
        record.completion_tokens = usage.completion_tokens
        record.finish_reason = ",".join(dict.fromkeys(self.finish_reasons())) if ended else None


async def whole(answer: Answer, record: RequestRecord) -> bytes:
    """Run the generations to their end and return the body.

    Raises:
        OpenAIError: when one fails, or an answer is not what was asked for; no part of an answer is returned.
    """
    try:
        return await _whole(answer, record)
    except EngineError as error:
        raise from_engine(error, answer.names) from None


async def _whole(answer: Answer, record: RequestRecord) -> bytes:
    async with Choices(answer.generations) as running:
        ended = False
        try:
            while (ready := await running.ready()) is not None:
                for index, pieces, complete in ready:
                    answer.take(index, pieces, complete=complete)
            ended = True
        finally:
            answer.note(record, running, ended=ended)
    return await answer.body(running)


async def stream(
    answer: Answer, events: Events, record: RequestRecord, timeouts: TimeoutSettings
) -> AsyncGenerator[bytes, None]:
    """Yield ready events, everything that is ready at once; comments while the engine is silent.

    The first bytes come with the engine's first response, or after ``headers_s`` of waiting for it.

    Raises:
        OpenAIError: when a generation fails before the first bytes. Afterwards its error is the last event.
    """
    finished = obfuscated if answer.padded else bytes
    async with Choices(answer.generations) as running:
        begun = ended = False
        try:
            timeout = timeouts.headers_s
            while not await running.responded(timeout):
                begun, timeout = True, timeouts.keepalive_s
                yield COMMENT
            waiting = events.opening()
            begun = begun or bool(waiting)
            quiet_since = time.monotonic()
            forward: Forward | None = None
            while True:
                # Nothing may overtake the opening, which goes with the first text.
                more = events.take(
                    await running.ready(timeouts.keepalive_s, None if waiting else forward) or [], running
                )
                if running.done:
                    break
                # A call that is held back makes no event of its tokens, however many they are.
                if waiting or more or time.monotonic() - quiet_since >= timeouts.keepalive_s:
                    begun = True
                    yield finished(waiting + more) or COMMENT
                    waiting, quiet_since = b"", time.monotonic()
                    if forward is None and record.write is not None:
                        forward = events.forward(record.write)
            ended = True
            answer.note(record, running, ended=True)
            last = waiting + more + events.end(running)
            record.ending = True
            yield finished(last)
        except (EngineError, OpenAIError) as error:
            failure = from_engine(error, answer.names) if isinstance(error, EngineError) else error
            if not begun:
                raise failure from None
            record.error = failure.code or failure.type
            if not ended:
                answer.note(record, running, ended=False)
                ended = True
            error.__traceback__ = None  # its frames lead to the generation, which keeps the error
            yield error_event(failure)
        finally:
            if not ended:
                answer.note(record, running, ended=False)


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
