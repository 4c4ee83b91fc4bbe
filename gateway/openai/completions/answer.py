"""The answer to a completion request over its running generations, and its whole body."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any

import anyio.to_thread
import orjson

from gateway.generation import Piece, Usage
from gateway.ids import new_id
from gateway.openai.answering import Answer, best
from gateway.openai.completions.choice import CompletionChoice
from gateway.openai.completions.logprobs import Row
from gateway.openai.completions.protocol import CompletionRequest
from gateway.openai.usage import usage_object
from gateway.serving.generation_group import GenerationGroup

_MANY_ROWS = 1024  # of prompts: writing more than these would hold up other requests' tokens


class CompletionAnswer(Answer):
    """An answer to a completion request.

    Attributes:
        request: the request.
        choices: one for each generation, those of the first prompt first.
    """

    __slots__ = ("_created", "_rows", "_texts", "choices", "request")

    def __init__(
        self, request: CompletionRequest, choices: Sequence[CompletionChoice], names: Mapping[str, str]
    ) -> None:
        """Take choices whose generations have not begun."""
        super().__init__([choice.running for choice in choices], names, padded=request.obfuscated)
        self.request = request
        self.choices = choices
        self._created = int(time.time())
        self._texts: list[list[str]] = [[] for _ in choices]
        self._rows: list[list[Row]] = [[] for _ in choices]

    def take(self, index: int, pieces: Sequence[Piece], *, complete: bool) -> None:
        """See the base."""
        del complete
        text, rows = self.choices[index].take(pieces)
        self._texts[index].append(text)
        self._rows[index] += rows

    def usage(self, group: GenerationGroup) -> Usage:
        """Token counts so far; the one token that the engine generates for none is not counted."""
        usage = group.usage()
        nothing = self.request.max_tokens == 0
        return dataclasses.replace(usage, completion_tokens=0, estimated=False) if nothing else usage

    def finish_reasons(self) -> list[str]:
        """See the base."""
        return [choice.finish_reason for choice in self.choices]

    async def body(self, group: GenerationGroup) -> bytes:
        """The ``text_completion`` object."""
        usage = self.usage(group)
        return await anyio.to_thread.run_sync(self._body, usage) if self._is_long() else self._body(usage)

    def _is_long(self) -> bool:
        """Whether writing the lists of the prompts would hold up other requests' tokens."""
        if not self.request.echo or self.request.logprobs is None:
            return False
        return sum(len(choice.prepared.prompt.ids) for choice in self.choices) > _MANY_ROWS

    def _body(self, usage: Usage) -> bytes:
        return orjson.dumps(
            {
                "id": completion_id(),
                "object": "text_completion",
                "created": self._created,
                "model": self.request.model,
                "choices": [self._choice(place, index) for place, index in enumerate(self._shown())],
                "usage": usage_object(usage),
            }
        )

    def _choice(self, place: int, index: int) -> dict[str, Any]:
        choice = self.choices[index]
        opening, first = choice.opening()
        return {
            "index": place,
            "text": opening + "".join(self._texts[index]),
            "logprobs": choice.logprobs(first + self._rows[index]),
            "finish_reason": choice.finish_reason,
            **choice.finish_marks,
            **choice.prompt_extras(),
            **choice.new_extras(),
        }

    def _shown(self) -> list[int]:
        """The choices that are shown, in order: of each prompt the best candidates."""
        shown: list[int] = []
        candidates = self.request.candidates
        for start in range(0, len(self.choices), candidates):
            scores = [choice.mean_logprob for choice in self.choices[start : start + candidates]]
            shown += [start + index for index in best(scores, self.request.n)]
        return shown


def completion_id() -> str:
    """A new id of an answer."""
    return f"cmpl-{new_id()}"
