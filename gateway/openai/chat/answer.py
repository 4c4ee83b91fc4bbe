"""The answer to a chat request over its running generations, and its whole body."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from gateway.generation import Piece, TokenLogprob, Usage
from gateway.ids import new_id
from gateway.openai.answering import Answer, best, prompt_logprobs_list
from gateway.openai.chat.choice import ParsedChoice
from gateway.openai.chat.logprobs import logprobs_object
from gateway.openai.chat.plan import Expectations
from gateway.openai.chat.protocol import ChatCompletionRequest
from gateway.openai.errors import OpenAIError
from gateway.openai.usage import ReasonedUsage, usage_object
from gateway.serving.generation import Generation
from gateway.serving.generation_group import GenerationGroup


class ChatAnswer(Answer):
    """An answer to a chat request.

    Attributes:
        request: the request.
        parsed: one for each generation where calls or reasoning may be in it, else none.
        calls: whether calls may be made.
        expectations: conditions that are checked at the end.
    """

    __slots__ = ("_created", "_logprobs", "_texts", "calls", "expectations", "parsed", "request")

    def __init__(
        self,
        request: ChatCompletionRequest,
        generations: Sequence[Generation],
        names: Mapping[str, str],
        *,
        parsed: Sequence[ParsedChoice] = (),
        calls: bool = False,
        expectations: Expectations | None = None,
    ) -> None:
        """Take generations that have not begun."""
        super().__init__(generations, names, padded=request.obfuscated)
        self.request = request
        self.parsed = parsed
        self.calls = calls
        self.expectations = expectations or Expectations()
        self._created = int(time.time())
        self._texts: list[list[str]] = [[] for _ in generations]
        self._logprobs: list[list[TokenLogprob]] = [[] for _ in generations]

    def take(self, index: int, pieces: Sequence[Piece], *, complete: bool) -> None:
        """See the base."""
        for piece in pieces:
            self._texts[index].append(piece.text)
            self._logprobs[index] += piece.logprobs
        if complete and self.parsed:
            self.close(index)
            self.parsed[index].events(complete=True)

    def close(self, index: int) -> None:
        """Tell the parser of a choice that its text has ended."""
        self.parsed[index].reader.close(cut=self.generations[index].assembler.finish_reason == "length")

    def finish_reason(self, index: int) -> str:
        """The finish reason of a choice; valid at its end."""
        reason = self.generations[index].assembler.finish_reason
        return self.parsed[index].finish_reason(reason) if self.parsed else reason

    def finish_reasons(self) -> list[str]:
        """See the base."""
        return [self.finish_reason(index) for index in range(len(self.generations))]

    def usage(self, group: GenerationGroup) -> Usage:
        """Token counts so far, with those of the reasoning where there may be any."""
        usage = group.usage()
        if not self.parsed:
            return usage
        counts = [choice.reasoning_tokens for choice in self.parsed]
        known = [count for count in counts if count is not None]
        reasoning = sum(known) if len(known) == len(counts) else None
        return ReasonedUsage(
            usage.prompt_tokens,
            usage.completion_tokens,
            usage.cached_tokens,
            usage.predicted,
            usage.estimated,
            reasoning,
        )

    def failure(self, index: int, text: str) -> OpenAIError | None:
        """The reason why a choice that has ended is not what was asked for; a cut one is never held against that.

        Args:
            index: of the choice.
            text: its content where it was not parsed.
        """
        if not self.expectations or self.generations[index].assembler.finish_reason == "length":
            return None
        if not self.parsed:
            return self.expectations.failure(text, ())
        return self.expectations.failure(self.parsed[index].content or "", self.parsed[index].calls)

    async def body(self, group: GenerationGroup) -> bytes:
        """The ``chat.completion`` object."""
        request = self.request
        shown = best([_mean(entries) for entries in self._logprobs], request.n)
        texts = ["".join(self._texts[index]) for index in shown]
        for index, text in zip(shown, texts, strict=True):
            failure = self.failure(index, text)
            if failure is not None:
                raise failure
        body = {
            "id": completion_id(),
            "object": "chat.completion",
            "created": self._created,
            "model": request.model,
            "choices": [self._choice(place, *found) for place, found in enumerate(zip(shown, texts, strict=True))],
            "usage": usage_object(self.usage(group)),
        }
        if request.tier is not None:
            body["service_tier"] = request.tier
        if request.return_token_ids:
            body["prompt_token_ids"] = list(self.generations[0].request.prompt.ids)
        if request.prompt_logprobs is not None:
            body["prompt_logprobs"] = prompt_logprobs_list(self.generations[0].assembler.prompt_entries())
        return orjson.dumps(body)

    def _choice(self, place: int, index: int, text: str) -> dict[str, Any]:
        request, assembler = self.request, self.generations[index].assembler
        content: str | None = text
        calls: Mapping[str, Any] = {}
        if self.parsed:
            content, calls = self.parsed[index].content, self.parsed[index].message()
        entries = self._logprobs[index]
        choice = {
            "index": place,
            "message": {
                "role": "assistant",
                "content": None if content is None else request.echoed + content,
                "refusal": None,
                **calls,
            },
            "logprobs": logprobs_object(entries, names_as_ids=request.return_tokens_as_token_ids)
            if request.logprobs
            else None,
            "finish_reason": self.finish_reason(index),
            "stop_reason": assembler.stop_reason,
        }
        if assembler.finish_estimated:
            choice["finish_reason_estimated"] = True
        return choice | {"token_ids": assembler.token_ids} if request.return_token_ids else choice


def completion_id() -> str:
    """A new id of an answer."""
    return f"chatcmpl-{new_id()}"


def _mean(entries: Sequence[TokenLogprob]) -> float:
    return sum(entry.logprob for entry in entries) / len(entries) if entries else -math.inf
