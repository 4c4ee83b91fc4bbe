"""Types of what responses of several endpoints have."""

from __future__ import annotations

from typing_extensions import TypedDict


class ErrorDetails(TypedDict):
    """The details of an error."""

    message: str
    type: str
    param: str | None
    code: str | None


class Error(TypedDict):
    """An error, also in a stream. ``param`` names the parameter at fault."""

    error: ErrorDetails


class PromptLogprob(TypedDict):
    """Extension: the log-prob of one token at one place of the prompt; the rank is null where it is not known."""

    logprob: float
    rank: int | None
    decoded_token: str


PromptLogprobs = list[dict[str, PromptLogprob] | None]
"""For each token of the prompt log-probs by token id; null for the first, which nothing comes before."""
