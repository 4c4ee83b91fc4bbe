"""OpenAI's ``usage`` object."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gateway.generation import Usage


@dataclass(frozen=True, slots=True)
class ReasonedUsage(Usage):
    """Token counts of an answer that may hold reasoning.

    Attributes:
        reasoning_tokens: tokens of the completion whose text is reasoning; None where this is not known.
    """

    reasoning_tokens: int | None = 0


def at_beginning(usage: Usage) -> Usage:
    """Return the counts of an answer before its first token, when the cached part of the prompt is not known yet."""
    return Usage(usage.prompt_tokens, 0)


def usage_object(usage: Usage) -> dict[str, Any]:
    """Write OpenAI's ``usage``.

    ``prompt_tokens_details`` is absent where the cached part of the prompt is not known, ``completion_tokens_details``
    where the reasoning's part of the answer is not. The latter has no counts of predicted tokens where the engine
    returns no ids, so that they are not known; it has ``estimated``, true, where ``completion_tokens`` was counted
    by tokenizing the answer again.
    """
    counts: dict[str, Any] = {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }
    if usage.cached_tokens is not None:
        counts["prompt_tokens_details"] = {"cached_tokens": usage.cached_tokens, "audio_tokens": 0}
    reasoning = usage.reasoning_tokens if isinstance(usage, ReasonedUsage) else 0
    details: dict[str, Any] = {}
    if reasoning is not None:
        details = {"reasoning_tokens": reasoning, "audio_tokens": 0}
        if usage.predicted is not None:
            details["accepted_prediction_tokens"], details["rejected_prediction_tokens"] = usage.predicted
    if usage.estimated:
        details["estimated"] = True
    if details:
        counts["completion_tokens_details"] = details
    return counts
