"""Types of the responses of ``POST /v1/messages`` and ``POST /v1/messages/count_tokens``."""

from __future__ import annotations

from typing import Any, Literal

from typing_extensions import NotRequired, TypedDict

from gateway.api.usage import AnthropicUsage


class AnthropicErrorCode(TypedDict):
    """The kind of an error on which Anthropic's clients act: they continue without a thread."""

    error_code: Literal["thread_unsupported_request"]


class AnthropicErrorDetails(TypedDict):
    """The details of an error."""

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
    """An error of Anthropic's paths, also in a stream."""

    type: Literal["error"]
    error: AnthropicErrorDetails
    request_id: str


StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"]


class AnthropicText(TypedDict):
    """Text of the model."""

    type: Literal["text"]
    text: str


class AnthropicThinking(TypedDict):
    """Reasoning of the model; its signature brings it back to the model where the client does not show it."""

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
    """A complete answer."""

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
    """The start of the answer."""

    type: Literal["message_start"]
    message: AnthropicMessage


class AnthropicPing(TypedDict):
    """A sign that the stream is alive."""

    type: Literal["ping"]


class AnthropicBlockStart(TypedDict):
    """The start of a content block, without its content."""

    type: Literal["content_block_start"]
    index: int
    content_block: AnthropicBlock


class AnthropicTextDelta(TypedDict):
    """A part of a text."""

    type: Literal["text_delta"]
    text: str


class AnthropicThinkingDelta(TypedDict):
    """A part of the reasoning."""

    type: Literal["thinking_delta"]
    thinking: str


class AnthropicSignatureDelta(TypedDict):
    """The signature of reasoning, after its text."""

    type: Literal["signature_delta"]
    signature: str


class AnthropicInputDelta(TypedDict):
    """A part of a tool's input, which is JSON text."""

    type: Literal["input_json_delta"]
    partial_json: str


class AnthropicBlockDelta(TypedDict):
    """A part of a content block."""

    type: Literal["content_block_delta"]
    index: int
    delta: AnthropicTextDelta | AnthropicThinkingDelta | AnthropicSignatureDelta | AnthropicInputDelta


class AnthropicBlockStop(TypedDict):
    """The end of a content block."""

    type: Literal["content_block_stop"]
    index: int


class AnthropicStop(TypedDict):
    """The reason why the answer ended."""

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
    """A served model, for clients that send ``anthropic-version``."""

    type: Literal["model"]
    id: str
    display_name: str
    created_at: str
    lifecycle: Literal["active"]


class AnthropicModelList(TypedDict):
    """All served models by all their names, for clients that send ``anthropic-version``."""

    data: list[AnthropicModel]
    has_more: Literal[False]
    first_id: str | None
    last_id: str | None
