"""Running generations become one body."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from gateway.generation import TokenLogprob, Usage
from gateway.ids import new_id
from gateway.openai.chat.choosing import best
from gateway.openai.chat.completion import Choice, completion_body, prompt_logprobs_list
from gateway.openai.chat.protocol import ChatCompletionRequest
from gateway.openai.chat.reading import ReadChoice
from gateway.openai.chat.turn import Expectations
from gateway.openai.errors import OpenAIError
from gateway.openai.usage import ReasonedUsage
from gateway.serving.choices import Choices
from gateway.serving.running import RunningGeneration
from gateway.web.record import RequestRecord


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """An answer that is about to be generated.

    Attributes:
        request: what was asked.
        generations: one for each candidate.
        read: one for each candidate where calls or reasoning may be in it, else none.
        calls: whether calls may be made.
        expectations: what must be checked at the end.
    """

    request: ChatCompletionRequest
    generations: Sequence[RunningGeneration]
    read: Sequence[ReadChoice] = ()
    calls: bool = False
    expectations: Expectations = field(default_factory=Expectations)

    def finish_reason(self, index: int) -> str:
        """Why a candidate ended; valid at its end."""
        reason = self.generations[index].assembler.finish_reason
        return self.read[index].finish_reason(reason) if self.read else reason

    def stop_reason(self, index: int) -> str | int | None:
        """The stop string or id that ended a candidate, None where something else did; valid at its end."""
        return self.generations[index].assembler.stop_reason

    def finish_reasons(self) -> list[str]:
        """Why each candidate ended; valid at the end."""
        return [self.finish_reason(index) for index in range(len(self.generations))]

    def usage(self, running: Choices) -> Usage:
        """Token counts so far, with those of the reasoning where there may be any."""
        usage = running.usage()
        if not self.read:
            return usage
        counts = [choice.reasoning_tokens for choice in self.read]
        known = [count for count in counts if count is not None]
        reasoning = sum(known) if len(known) == len(counts) else None
        return ReasonedUsage(
            usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens, usage.predicted, reasoning
        )

    def failure(self, index: int, text: str) -> OpenAIError | None:
        """Why a candidate that has ended is not what was asked for; a cut one is never held against that.

        Args:
            index: of the candidate.
            text: its content where it was not read.
        """
        if not self.expectations or self.generations[index].assembler.finish_reason == "length":
            return None
        if not self.read:
            return self.expectations.failure(text, ())
        return self.expectations.failure(self.read[index].content or "", self.read[index].calls)


def completion_id() -> str:
    """A new id of an answer."""
    return f"chatcmpl-{new_id()}"


def tier(request: ChatCompletionRequest) -> str | None:
    """The only tier there is, where the request spoke of tiers."""
    return None if request.service_tier is None else "default"


def note(record: RequestRecord, running: Choices, answer: ChatAnswer, *, ended: bool) -> None:
    """Tell the access log what became of the generations."""
    usage = running.usage()
    record.ttft_s = running.ttft_s
    record.prompt_tokens = usage.prompt_tokens
    record.completion_tokens = usage.completion_tokens
    record.finish_reason = ",".join(dict.fromkeys(answer.finish_reasons())) if ended else None


async def whole_answer(answer: ChatAnswer, record: RequestRecord) -> bytes:
    """Run the generations to their end and return the body.

    Raises:
        EngineError: when one fails; nothing of a part of an answer is returned.
        OpenAIError: when an answer is not what was asked for.
    """
    created = int(time.time())
    generations, request = answer.generations, answer.request
    texts: list[list[str]] = [[] for _ in generations]
    logprobs: list[list[TokenLogprob]] = [[] for _ in generations]
    async with Choices(generations) as running:
        ended = False
        try:
            while (ready := await running.ready()) is not None:
                for index, pieces, _ in ready:
                    for piece in pieces:
                        texts[index].append(piece.text)
                        logprobs[index] += piece.logprobs
            for index, choice in enumerate(answer.read):
                choice.reader.close(cut=generations[index].assembler.finish_reason == "length")
                choice.take()
            ended = True
        finally:
            note(record, running, answer, ended=ended)
    shown = best(logprobs, request.n)
    for index in shown:
        failure = answer.failure(index, "".join(texts[index]))
        if failure is not None:
            raise failure
    choices = [_choice(answer, index, "".join(texts[index]), logprobs[index]) for index in shown]
    extras = _extras(generations[0], request)
    return completion_body(
        completion_id(), created, request.model, choices=choices, usage=answer.usage(running), extras=extras
    )


def _choice(answer: ChatAnswer, index: int, text: str, logprobs: Sequence[TokenLogprob]) -> Choice:
    request = answer.request
    content: str | None = text
    message = {}
    if answer.read:
        content, message = answer.read[index].content, answer.read[index].message()
    return Choice(
        None if content is None else request.echoed() + content,
        answer.finish_reason(index),
        answer.stop_reason(index),
        logprobs if request.logprobs else None,
        request.return_tokens_as_token_ids,
        answer.generations[index].assembler.token_ids if request.return_token_ids else None,
        message,
    )


def _extras(generation: RunningGeneration, request: ChatCompletionRequest) -> dict[str, Any]:
    extras: dict[str, Any] = {}
    if (stated := tier(request)) is not None:
        extras["service_tier"] = stated
    if request.return_token_ids:
        extras["prompt_token_ids"] = generation.request.prompt.ids
    if request.prompt_logprobs is not None:
        extras["prompt_logprobs"] = prompt_logprobs_list(generation.assembler.prompt_entries())
    return extras
