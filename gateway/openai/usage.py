"""OpenAI's ``usage`` object."""

from __future__ import annotations

from typing import Any

from gateway.generation import Usage

# No token is ever of these kinds here: text only, nothing predicted, and nothing hidden from the answer.
_COMPLETION_DETAILS = {
    "reasoning_tokens": 0,
    "audio_tokens": 0,
    "accepted_prediction_tokens": 0,
    "rejected_prediction_tokens": 0,
}


def usage_object(usage: Usage) -> dict[str, Any]:
    """OpenAI's ``usage``; ``prompt_tokens_details`` is null where nobody knows how much of the prompt was cached."""
    cached = usage.cached_tokens
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": None if cached is None else {"cached_tokens": cached, "audio_tokens": 0},
        "completion_tokens_details": _COMPLETION_DETAILS,
    }
