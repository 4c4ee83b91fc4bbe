"""The answer to a completion request, whole or as a stream, over its running generations."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from gateway.generation import Usage
from gateway.ids import new_id
from gateway.openai.completions.protocol import CompletionRequest
from gateway.openai.completions.sequence import Choice
from gateway.serving.choices import Choices
from gateway.web.record import RequestRecord


def completion_id() -> str:
    """A fresh id of an answer."""
    return f"cmpl-{new_id()}"


@dataclass(frozen=True, slots=True)
class Answer:
    """What is about to be answered.

    Attributes:
        request: that it answers.
        choices: all generations, those of the first prompt first.
        candidates: generations for each prompt; ``request.n`` of them are shown.
    """

    request: CompletionRequest
    choices: Sequence[Choice]
    candidates: int

    def running(self) -> Choices:
        """The generations as one context."""
        return Choices([choice.running for choice in self.choices])

    def usage(self, running: Choices) -> Usage:
        """Token counts so far; the one token that the engine generates for none is not counted."""
        usage = running.usage()
        return usage if self.request.max_tokens != 0 else dataclasses.replace(usage, completion_tokens=0)

    def note(self, record: RequestRecord, running: Choices, *, ended: bool) -> None:
        """Tell the access log what became of the generations."""
        usage = self.usage(running)
        record.ttft_s = running.ttft_s
        record.prompt_tokens = usage.prompt_tokens
        record.completion_tokens = usage.completion_tokens
        reasons = [choice.finish_reason for choice in self.choices] if ended else []
        record.finish_reason = ",".join(dict.fromkeys(reasons)) or None
