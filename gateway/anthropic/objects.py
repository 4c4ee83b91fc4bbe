"""Types of Anthropic's answers that endpoints share: errors, and models."""

from __future__ import annotations

from typing import Literal

from typing_extensions import NotRequired, TypedDict


class AnthropicErrorCode(TypedDict):
    """Which error it is, where Anthropic's clients do more than show it: they go on without a thread."""

    error_code: Literal["thread_unsupported_request"]


class AnthropicErrorDetails(TypedDict):
    """What went wrong."""

    type: Literal[
        "invalid_request_error",
        "authentication_error",
        "permission_error",
        "not_found_error",
        "request_too_large",
        "rate_limit_error",
        "api_error",
        "timeout_error",
        "overloaded_error",
    ]
    message: str
    details: NotRequired[AnthropicErrorCode]


class AnthropicError(TypedDict):
    """What every error of Anthropic's paths looks like, in a stream too."""

    type: Literal["error"]
    error: AnthropicErrorDetails
    request_id: str


class AnthropicModel(TypedDict):
    """A served model, as a client that sends ``anthropic-version`` is told of it."""

    type: Literal["model"]
    id: str
    display_name: str
    created_at: str
    lifecycle: Literal["active"]


class AnthropicModelList(TypedDict):
    """All served models by all their names, as a client that sends ``anthropic-version`` is told of them."""

    data: list[AnthropicModel]
    has_more: Literal[False]
    first_id: str | None
    last_id: str | None
