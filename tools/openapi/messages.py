"""Types of the responses of ``POST /v1/messages`` and ``POST /v1/messages/count_tokens``."""

from __future__ import annotations

from typing import Any, Literal

from typing_extensions import NotRequired, TypedDict

from gateway.api.usage import AnthropicUsage


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


StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"]


class AnthropicText(TypedDict):
    """Text of the model."""

    type: Literal["text"]
    text: str


class AnthropicThinking(TypedDict):
    """Reasoning of the model; its signature brings it back where the client did not want to see it."""

    type: Literal["thinking"]
    thinking: str
    signature: str


class AnthropicToolUse(TypedDict):
    """A call of a tool."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]


AnthropicBlock = AnthropicText | AnthropicThinking | AnthropicToolUse


class AnthropicMessage(TypedDict):
    """An answer."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[AnthropicBlock]
    stop_reason: StopReason | None
    stop_sequence: str | None
    stop_reason_estimated: NotRequired[Literal[True]]
    usage: AnthropicUsage


class AnthropicMessageStart(TypedDict):
    """The answer begins."""

    type: Literal["message_start"]
    message: AnthropicMessage


class AnthropicPing(TypedDict):
    """The stream is alive."""

    type: Literal["ping"]


class AnthropicBlockStart(TypedDict):
    """A content block begins, without its content."""

    type: Literal["content_block_start"]
    index: int
    content_block: AnthropicBlock


class AnthropicTextDelta(TypedDict):
    """More text."""

    type: Literal["text_delta"]
    text: str


class AnthropicThinkingDelta(TypedDict):
    """More reasoning."""

    type: Literal["thinking_delta"]
    thinking: str


class AnthropicSignatureDelta(TypedDict):
    """The signature of reasoning, behind all of it."""

    type: Literal["signature_delta"]
    signature: str


class AnthropicInputDelta(TypedDict):
    """More of a tool's input, which is JSON text."""

    type: Literal["input_json_delta"]
    partial_json: str


class AnthropicBlockDelta(TypedDict):
    """More of a content block."""

    type: Literal["content_block_delta"]
    index: int
    delta: AnthropicTextDelta | AnthropicThinkingDelta | AnthropicSignatureDelta | AnthropicInputDelta


class AnthropicBlockStop(TypedDict):
    """A content block has ended."""

    type: Literal["content_block_stop"]
    index: int


class AnthropicStop(TypedDict):
    """Why the answer ended."""

    stop_reason: StopReason
    stop_sequence: str | None
    stop_reason_estimated: NotRequired[Literal[True]]


class AnthropicMessageDelta(TypedDict):
    """The end of the answer."""

    type: Literal["message_delta"]
    delta: AnthropicStop
    usage: AnthropicUsage


class AnthropicMessageStop(TypedDict):
    """The last event."""

    type: Literal["message_stop"]


EVENTS: tuple[type, ...] = (
    AnthropicMessageStart,
    AnthropicPing,
    AnthropicBlockStart,
    AnthropicBlockDelta,
    AnthropicBlockStop,
    AnthropicMessageDelta,
    AnthropicMessageStop,
    AnthropicError,
)
"""The data of one event of a stream is of one of these types."""


class AnthropicTokenCount(TypedDict):
    """The number of tokens that a request's prompt has."""

    input_tokens: int


class AnthropicModel(TypedDict):
    """A served model, as clients that send ``anthropic-version`` see it."""

    type: Literal["model"]
    id: str
    display_name: str
    created_at: str
    lifecycle: Literal["active"]


class AnthropicModelList(TypedDict):
    """All served models by all their names, as clients that send ``anthropic-version`` see them."""

    data: list[AnthropicModel]
    has_more: Literal[False]
    first_id: str | None
    last_id: str | None
