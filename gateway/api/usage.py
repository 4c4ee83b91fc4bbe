"""Token counts in the form of each API: their types for the OpenAPI document, and their writers.

The counts are those of ``gateway.generation.Usage``. What is not known is absent in chat and completions, and 0 in the
others, whose types demand it.
"""

from __future__ import annotations

from typing import Literal

from typing_extensions import NotRequired, TypedDict

from gateway.generation import Usage


class PromptTokensDetails(TypedDict):
    """Counts of the prompt's tokens."""

    cached_tokens: int
    audio_tokens: int


class CompletionTokensDetails(TypedDict):
    """Counts of the generated tokens; ``estimated`` is true, or absent where the engine counted them all."""

    reasoning_tokens: NotRequired[int]
    audio_tokens: NotRequired[int]
    accepted_prediction_tokens: NotRequired[int]
    rejected_prediction_tokens: NotRequired[int]
    estimated: NotRequired[bool]


class CompletionUsage(TypedDict):
    """Token counts of an answer. Details that are not known are absent."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: NotRequired[PromptTokensDetails]
    completion_tokens_details: NotRequired[CompletionTokensDetails]


def completion_usage(usage: Usage) -> CompletionUsage:
    """Write the ``usage`` of chat and completions.

    ``prompt_tokens_details`` is absent where the cached part of the prompt is not known, ``completion_tokens_details``
    where the reasoning's part of the answer is not. The latter has no counts of predicted tokens where the engine
    answers without ids, so that they are not known; it has ``estimated``, true, where ``completion_tokens`` was counted
    by tokenizing the answer again.
    """
    counts: CompletionUsage = {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }
    if usage.cached_tokens is not None:
        counts["prompt_tokens_details"] = {"cached_tokens": usage.cached_tokens, "audio_tokens": 0}
    details: CompletionTokensDetails = {}
    if usage.reasoning_tokens is not None:
        details = {"reasoning_tokens": usage.reasoning_tokens, "audio_tokens": 0}
        if usage.predicted is not None:
            details["accepted_prediction_tokens"], details["rejected_prediction_tokens"] = usage.predicted
    if usage.estimated:
        details["estimated"] = True
    if details:
        counts["completion_tokens_details"] = details
    return counts


class ResponseInputTokensDetails(TypedDict):
    """Counts of the prompt's tokens: 0 where the engine does not tell them."""

    cached_tokens: int
    cache_write_tokens: int


class ResponseOutputTokensDetails(TypedDict):
    """Counts of the generated tokens: 0 where the engine does not tell them.

    ``estimated`` is true where ``output_tokens`` was counted by tokenizing the answer again, else absent.
    """

    reasoning_tokens: int
    estimated: NotRequired[bool]


class ResponseUsage(TypedDict):
    """Token counts of a response."""

    input_tokens: int
    input_tokens_details: ResponseInputTokensDetails
    output_tokens: int
    output_tokens_details: ResponseOutputTokensDetails
    total_tokens: int


def response_usage(usage: Usage) -> ResponseUsage:
    """Write the ``usage`` of a response."""
    details: ResponseOutputTokensDetails = {"reasoning_tokens": usage.reasoning_tokens or 0}
    if usage.estimated:
        details["estimated"] = True
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens or 0, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": details,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }


class AnthropicOutputDetails(TypedDict):
    """The reasoning's part of an answer's tokens."""

    thinking_tokens: int


class AnthropicUsage(TypedDict):
    """Token counts. Cached tokens are 0 where the engine does not tell them.

    Extension: ``estimated`` is there where the answer's tokens were counted by tokenizing its text again.
    """

    input_tokens: int
    cache_creation_input_tokens: Literal[0]
    cache_read_input_tokens: int
    output_tokens: int
    output_tokens_details: NotRequired[AnthropicOutputDetails]
    estimated: NotRequired[Literal[True]]


def message_usage(usage: Usage) -> AnthropicUsage:
    """Write the ``usage`` of a message, whose input tokens exclude tokens that were read from the cache.

    ``output_tokens_details`` is set where the answer may hold reasoning and its part is known.
    """
    cached = usage.cached_tokens or 0
    counts: AnthropicUsage = {
        "input_tokens": usage.prompt_tokens - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": usage.completion_tokens,
    }
    if usage.may_reason and usage.reasoning_tokens is not None:
        counts["output_tokens_details"] = {"thinking_tokens": usage.reasoning_tokens}
    if usage.estimated:
        counts["estimated"] = True
    return counts
