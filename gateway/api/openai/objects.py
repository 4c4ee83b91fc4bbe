"""Objects of responses that endpoints share, as types: the OpenAPI document is made from them."""

from __future__ import annotations

from typing_extensions import NotRequired, TypedDict


class ErrorDetails(TypedDict):
    """What went wrong."""

    message: str
    type: str
    param: str | None
    code: str | None


class Error(TypedDict):
    """What every error looks like, in a stream too. ``param`` names the parameter at fault."""

    error: ErrorDetails


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


class PromptLogprob(TypedDict):
    """Extension: the log-prob of one token at one place of the prompt; the rank is null where it is not known."""

    logprob: float
    rank: int | None
    decoded_token: str


PromptLogprobs = list[dict[str, PromptLogprob] | None]
"""For each token of the prompt log-probs by token id; null for the first, which nothing comes before."""
